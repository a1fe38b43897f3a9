#pragma once

#include <array>
#include <cmath>
#include <random>

namespace ppo {

/// A pole on a cart that is pushed left or right: one point of reward a step until it falls, leaves the track, or 500
/// steps have passed. The equations of Barto, Sutton and Anderson (1983), integrated by Euler steps of 20 ms.
class CartPole {
 public:
  using State = std::array<float, 4>;  ///< position, velocity, angle, angular velocity
  static constexpr int kMaxSteps = 500;

  explicit CartPole(std::mt19937_64& random) { reset(random); }

  void reset(std::mt19937_64& random) {
    std::uniform_real_distribution<float> near_zero(-0.05F, 0.05F);
    for (float& value : state_) value = near_zero(random);
    steps_ = 0;
  }

  /// True when the episode is over.
  bool step(int action) {
    auto& [x, velocity, angle, spin] = state_;
    const float force = action == 1 ? 10.0F : -10.0F;
    const float cosine = std::cos(angle);
    const float sine = std::sin(angle);
    const float push = (force + kPoleMassLength * spin * spin * sine) / kTotalMass;
    const float spin_gain =
        (9.8F * sine - cosine * push) / (kHalfLength * (4.0F / 3.0F - kPoleMass * cosine * cosine / kTotalMass));
    const float gain = push - kPoleMassLength * spin_gain * cosine / kTotalMass;
    x += kStepSeconds * velocity;
    velocity += kStepSeconds * gain;
    angle += kStepSeconds * spin;
    spin += kStepSeconds * spin_gain;
    ++steps_;
    return std::abs(x) > 2.4F || std::abs(angle) > 0.2095F || steps_ >= kMaxSteps;
  }

  [[nodiscard]] const State& state() const { return state_; }
  [[nodiscard]] int steps() const { return steps_; }

 private:
  static constexpr float kPoleMass = 0.1F;
  static constexpr float kTotalMass = 1.1F;
  static constexpr float kHalfLength = 0.5F;
  static constexpr float kPoleMassLength = kPoleMass * kHalfLength;
  static constexpr float kStepSeconds = 0.02F;

  State state_{};
  int steps_ = 0;
};

}  // namespace ppo
