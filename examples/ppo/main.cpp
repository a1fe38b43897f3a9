// Proximal policy optimization on the cart-pole, profiled by two roles with a schedule each: two mini-batches of the
// actor's update and two windows of one mini-batch of the critic's, out of hundreds.

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "marey/marey.hpp"
#include "ppo.h"

namespace {

struct Settings {
  std::int64_t train_steps = 25;
  std::uint64_t seed = 1;
  std::string out = "marey-traces";
  bool profile = true;
};

constexpr const char* kUsage = "usage: marey_ppo [--steps N] [--seed N] [--out FOLDER] [--no-profile]\n";

template <typename Number>
bool parse_number(std::string_view text, Number* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

bool parse_settings(int argc, char** argv, Settings* settings) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--no-profile") {
      settings->profile = false;
    } else if (i + 1 == argc) {
      return false;
    } else if (word == "--out") {
      settings->out = argv[++i];
    } else if (word == "--steps") {
      if (!parse_number(argv[++i], &settings->train_steps)) return false;
    } else if (word == "--seed") {
      if (!parse_number(argv[++i], &settings->seed)) return false;
    } else {
      return false;
    }
  }
  return true;
}

void train(const Settings& settings, marey::Profiler& actor, marey::Profiler& critic) {
  using marey::Counting;
  using marey::Stage;

  ppo::Trainer trainer(settings.seed);
  marey::Lease actor_lease(actor, 0);
  marey::Lease critic_lease(critic, 0);
  for (std::int64_t step = 0; step < settings.train_steps; ++step) {
    ppo::Samples samples;
    {
      Stage stage(actor, "rollout");
      samples = trainer.rollout();
    }
    {
      Stage stage(critic, "compute_values");
      trainer.compute_values(samples);
    }
    {
      Stage stage(actor, "advantage");
      ppo::Trainer::compute_advantages(samples);
    }
    {
      Stage stage(critic, "critic_update", Counting::kScheduled);
      for (const auto& batch : marey::mini_batches(critic, trainer.mini_batches()))
        trainer.update_critic(samples, batch);
    }
    {
      Stage stage(actor, "actor_update", Counting::kScheduled);
      for (const auto& batch : marey::mini_batches(actor, trainer.mini_batches())) trainer.update_actor(samples, batch);
    }
    actor.tick(marey::Unit::kTrainStep);
    critic.tick(marey::Unit::kTrainStep);
    std::printf("step %2lld  mean return %5.1f of %d episodes\n", static_cast<long long>(step), samples.mean_return,
                samples.episodes);
  }
  actor.end_units();
  critic.end_units();
}

void print_files(marey::Profiler& profiler) {
  if (const marey::Error error = profiler.wait()) std::fprintf(stderr, "%s\n", error.message.c_str());
  for (const marey::Window& window : profiler.windows()) std::printf("  %s\n", window.path.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  if (!parse_settings(argc, argv, &settings)) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  marey::Profiler actor;  // off until it is replaced
  marey::Profiler critic;
  if (settings.profile) {
    // Mini-batches 3 and 4 of step 5's actor update: two are skipped, one warms up, two are recorded.
    auto for_actor = marey::Profiler::create({.schedule = {.skip_first = 2, .warmup = 1, .active = 2, .repeat = 1},
                                              .role = "actor",
                                              .out = settings.out,
                                              .steps = {5}});
    // Mini-batches 1 and 3, a window each, of the critic updates of steps 5 and 10.
    auto for_critic = marey::Profiler::create(
        {.schedule = {.wait = 1, .active = 1, .repeat = 2}, .role = "critic", .out = settings.out, .steps = {5, 10}});
    for (const auto* made : {&for_actor, &for_critic}) {
      if (!*made) {
        std::fprintf(stderr, "%s\n", made->error().message.c_str());
        return 1;
      }
    }
    actor = std::move(for_actor).value();
    critic = std::move(for_critic).value();
  }
  train(settings, actor, critic);
  if (!settings.profile) return 0;
  std::puts("\nwritten:");
  print_files(actor);
  print_files(critic);
  std::printf("\nnext:\n  marey units %s\n", settings.out.c_str());
  return 0;
}
