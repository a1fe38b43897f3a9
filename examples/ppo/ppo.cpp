#include "ppo.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "marey/range.h"

namespace ppo {
namespace {

constexpr std::size_t kInputs = 4;
constexpr std::size_t kHidden = 64;
constexpr std::size_t kActions = 2;
constexpr float kDiscount = 0.99F;
constexpr float kLambda = 0.95F;
constexpr float kClip = 0.2F;
constexpr float kEntropyWeight = 0.01F;
constexpr float kLearningRate = 1e-3F;

std::vector<float> rows_of(std::span<const CartPole::State> states) {
  std::vector<float> rows;
  rows.reserve(states.size() * kInputs);
  for (const CartPole::State& state : states) rows.insert(rows.end(), state.begin(), state.end());
  return rows;
}

std::vector<float> rows_of(const std::vector<CartPole::State>& states, std::span<const std::size_t> chosen) {
  std::vector<float> rows;
  rows.reserve(chosen.size() * kInputs);
  for (const std::size_t i : chosen) rows.insert(rows.end(), states[i].begin(), states[i].end());
  return rows;
}

/// Log-probabilities of both actions.
std::array<float, kActions> log_softmax(std::span<const float> logits) {
  const float top = std::max(logits[0], logits[1]);
  const float log_sum = top + std::log(std::exp(logits[0] - top) + std::exp(logits[1] - top));
  return {logits[0] - log_sum, logits[1] - log_sum};
}

}  // namespace

Trainer::Trainer(std::uint64_t seed)
    : random_(seed), actor_(kInputs, kHidden, kActions, random_), critic_(kInputs, kHidden, 1, random_) {
  for (std::size_t i = 0; i < kEnvironments; ++i) environments_.emplace_back(random_);
}

Samples Trainer::rollout() {
  Samples samples;
  const std::size_t count = kEnvironments * kSteps;
  samples.states.resize(count);
  samples.actions.resize(count);
  samples.log_probabilities.resize(count);
  samples.done.resize(count);
  std::uniform_real_distribution<float> uniform(0.0F, 1.0F);
  double sum = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    MAREY_RANGE("environment_step");
    std::vector<CartPole::State> states;
    for (const CartPole& environment : environments_) states.push_back(environment.state());
    const auto logits = actor_.forward(rows_of(states), kEnvironments);
    for (std::size_t e = 0; e < kEnvironments; ++e) {
      const std::size_t i = e * kSteps + step;
      const auto log_probabilities = log_softmax(logits.subspan(e * kActions, kActions));
      const int action = uniform(random_) < std::exp(log_probabilities[1]) ? 1 : 0;
      samples.states[i] = states[e];
      samples.actions[i] = action;
      samples.log_probabilities[i] = log_probabilities[static_cast<std::size_t>(action)];
      if (environments_[e].step(action)) {
        samples.done[i] = 1;
        sum += environments_[e].steps();
        ++samples.episodes;
        environments_[e].reset(random_);
      }
    }
  }
  for (const CartPole& environment : environments_) samples.last_states.push_back(environment.state());
  samples.mean_return = samples.episodes > 0 ? sum / samples.episodes : 0;
  return samples;
}

void Trainer::compute_values(Samples& samples) {
  std::vector<CartPole::State> states = samples.states;
  states.insert(states.end(), samples.last_states.begin(), samples.last_states.end());
  const auto values = critic_.forward(rows_of(states), states.size());
  samples.values.assign(values.begin(), values.end());
}

void Trainer::compute_advantages(Samples& samples) {
  const std::size_t count = samples.states.size();
  samples.advantages.resize(count);
  samples.returns.resize(count);
  for (std::size_t e = 0; e < kEnvironments; ++e) {
    float advantage = 0;
    float next_value = samples.values[count + e];
    for (std::size_t step = kSteps; step-- > 0;) {
      const std::size_t i = e * kSteps + step;
      const float alive = samples.done[i] != 0 ? 0.0F : 1.0F;
      const float delta = 1.0F + kDiscount * alive * next_value - samples.values[i];
      advantage = delta + kDiscount * kLambda * alive * advantage;
      samples.advantages[i] = advantage;
      samples.returns[i] = advantage + samples.values[i];
      next_value = samples.values[i];
    }
  }
  const auto size = static_cast<float>(count);
  const float mean = std::accumulate(samples.advantages.begin(), samples.advantages.end(), 0.0F) / size;
  float variance = 0;
  for (const float advantage : samples.advantages) variance += (advantage - mean) * (advantage - mean) / size;
  for (float& advantage : samples.advantages) advantage = (advantage - mean) / (std::sqrt(variance) + 1e-8F);
}

std::vector<std::vector<std::size_t>> Trainer::mini_batches() {
  std::vector<std::size_t> order(kEnvironments * kSteps);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<std::vector<std::size_t>> batches;
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    std::shuffle(order.begin(), order.end(), random_);
    for (auto at = order.begin(); at != order.end(); at += kMiniBatch) batches.emplace_back(at, at + kMiniBatch);
  }
  return batches;
}

void Trainer::update_actor(const Samples& samples, std::span<const std::size_t> batch) {
  const auto logits = actor_.forward(rows_of(samples.states, batch), batch.size());
  std::vector<float> gradient(logits.size());
  {
    MAREY_RANGE("policy_loss");
    const float share = 1.0F / static_cast<float>(batch.size());
    for (std::size_t row = 0; row < batch.size(); ++row) {
      const std::size_t i = batch[row];
      const auto log_probabilities = log_softmax(logits.subspan(row * kActions, kActions));
      const auto action = static_cast<std::size_t>(samples.actions[i]);
      const float ratio = std::exp(log_probabilities[action] - samples.log_probabilities[i]);
      const float advantage = samples.advantages[i];
      // The clipped objective is flat where the policy has already moved far enough in the advantage's direction.
      const bool flat = advantage > 0 ? ratio > 1.0F + kClip : ratio < 1.0F - kClip;
      const float pull = flat ? 0.0F : -advantage * ratio;
      float entropy = 0;
      for (const float each : log_probabilities) entropy -= std::exp(each) * each;
      for (std::size_t a = 0; a < kActions; ++a) {
        const float probability = std::exp(log_probabilities[a]);
        const float policy = pull * ((a == action ? 1.0F : 0.0F) - probability);
        const float exploration = kEntropyWeight * probability * (log_probabilities[a] + entropy);
        gradient[row * kActions + a] = share * (policy + exploration);
      }
    }
  }
  actor_.backward(gradient);
  actor_.update(kLearningRate);
}

void Trainer::update_critic(const Samples& samples, std::span<const std::size_t> batch) {
  const auto values = critic_.forward(rows_of(samples.states, batch), batch.size());
  std::vector<float> gradient(values.size());
  {
    MAREY_RANGE("value_loss");
    const float share = 1.0F / static_cast<float>(batch.size());
    for (std::size_t row = 0; row < batch.size(); ++row)
      gradient[row] = share * (values[row] - samples.returns[batch[row]]);
  }
  critic_.backward(gradient);
  critic_.update(kLearningRate);
}

}  // namespace ppo
