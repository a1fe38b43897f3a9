#pragma once

#include <cstddef>
#include <random>
#include <span>
#include <vector>

namespace ppo {

/// Two hidden layers of tanh and a linear one, trained by Adam. Matrices are row-major, one row a sample.
class Network {
 public:
  Network(std::size_t inputs, std::size_t hidden, std::size_t outputs, std::mt19937_64& random);

  /// Outputs for `rows` samples; valid until the next call. Keeps what backward() needs.
  std::span<const float> forward(std::span<const float> inputs, std::size_t rows);
  /// Accumulates gradients of the last forward(), given the loss's gradient by its outputs.
  void backward(std::span<const float> output_gradient);
  /// One step of Adam with the gradients cut to norm 0.5, and clears them.
  void update(float learning_rate);

 private:
  struct Layer {
    std::size_t inputs, outputs;
    std::vector<float> weights;  ///< inputs x outputs, then the biases
    std::vector<float> gradients, first_moment, second_moment;
    std::vector<float> input;   ///< of the last forward()
    std::vector<float> output;  ///< after the activation
    bool is_tanh;
  };

  void forward_layer(Layer& layer, std::size_t rows) const;

  std::vector<Layer> layers_;
  std::size_t rows_ = 0;
  int updates_ = 0;
};

}  // namespace ppo
