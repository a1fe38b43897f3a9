#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "cart_pole.h"
#include "network.h"

namespace ppo {

/// What one train step learns from: environments x steps samples, environment by environment.
struct Samples {
  std::vector<CartPole::State> states;
  std::vector<int> actions;
  std::vector<float> log_probabilities;  ///< of the actions, under the policy that chose them
  std::vector<float> values;
  std::vector<char> done;                    ///< the episode ended with this sample
  std::vector<CartPole::State> last_states;  ///< where each environment stands after its last sample
  std::vector<float> advantages;
  std::vector<float> returns;
  double mean_return = 0;  ///< of the episodes that ended; 0 when none did
  int episodes = 0;
};

/// Proximal policy optimization (Schulman et al. 2017) with an actor and a critic of their own.
class Trainer {
 public:
  static constexpr std::size_t kEnvironments = 8;
  static constexpr std::size_t kSteps = 128;
  static constexpr std::size_t kMiniBatch = 128;
  static constexpr int kEpochs = 4;

  explicit Trainer(std::uint64_t seed);

  [[nodiscard]] Samples rollout();
  void compute_values(Samples& samples);
  /// Generalized advantage estimation, normalized.
  static void compute_advantages(Samples& samples);

  /// Indices of the samples of each mini-batch, over all epochs, in a new order each time.
  [[nodiscard]] std::vector<std::vector<std::size_t>> mini_batches();
  void update_actor(const Samples& samples, std::span<const std::size_t> batch);
  void update_critic(const Samples& samples, std::span<const std::size_t> batch);

 private:
  std::mt19937_64 random_;
  Network actor_;
  Network critic_;
  std::vector<CartPole> environments_;
};

}  // namespace ppo
