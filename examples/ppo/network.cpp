#include "network.h"

#include <algorithm>
#include <cmath>

#include "marey/range.h"

namespace ppo {

Network::Network(std::size_t inputs, std::size_t hidden, std::size_t outputs, std::mt19937_64& random) {
  const auto add = [&](std::size_t from, std::size_t to, bool is_tanh, float scale) {
    Layer layer{from, to, {}, {}, {}, {}, {}, {}, is_tanh};
    std::normal_distribution<float> normal(0.0F, scale / std::sqrt(static_cast<float>(from)));
    layer.weights.resize((from + 1) * to);
    for (std::size_t i = 0; i < from * to; ++i) layer.weights[i] = normal(random);
    layer.gradients.resize(layer.weights.size());
    layer.first_moment.resize(layer.weights.size());
    layer.second_moment.resize(layer.weights.size());
    layers_.push_back(std::move(layer));
  };
  add(inputs, hidden, true, 1.4F);
  add(hidden, hidden, true, 1.4F);
  add(hidden, outputs, false, 0.01F);
}

void Network::forward_layer(Layer& layer, std::size_t rows) const {
  layer.output.resize(rows * layer.outputs);
  const float* bias = layer.weights.data() + layer.inputs * layer.outputs;
  for (std::size_t row = 0; row < rows; ++row) {
    float* out = layer.output.data() + row * layer.outputs;
    std::copy_n(bias, layer.outputs, out);
    for (std::size_t i = 0; i < layer.inputs; ++i) {
      const float x = layer.input[row * layer.inputs + i];
      const float* weights = layer.weights.data() + i * layer.outputs;
      for (std::size_t o = 0; o < layer.outputs; ++o) out[o] += x * weights[o];
    }
  }
  if (layer.is_tanh) {
    for (float& value : layer.output) value = std::tanh(value);
  }
}

std::span<const float> Network::forward(std::span<const float> inputs, std::size_t rows) {
  MAREY_RANGE("forward", marey::arg<"rows">(rows));
  rows_ = rows;
  layers_.front().input.assign(inputs.begin(), inputs.end());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    if (i > 0) layers_[i].input = layers_[i - 1].output;
    forward_layer(layers_[i], rows);
  }
  return layers_.back().output;
}

void Network::backward(std::span<const float> output_gradient) {
  MAREY_RANGE("backward");
  std::vector<float> gradient(output_gradient.begin(), output_gradient.end());
  for (auto layer = layers_.rbegin(); layer != layers_.rend(); ++layer) {
    if (layer->is_tanh) {
      for (std::size_t i = 0; i < gradient.size(); ++i) gradient[i] *= 1.0F - layer->output[i] * layer->output[i];
    }
    std::vector<float> below(rows_ * layer->inputs);
    float* bias = layer->gradients.data() + layer->inputs * layer->outputs;
    for (std::size_t row = 0; row < rows_; ++row) {
      const float* out = gradient.data() + row * layer->outputs;
      for (std::size_t o = 0; o < layer->outputs; ++o) bias[o] += out[o];
      for (std::size_t i = 0; i < layer->inputs; ++i) {
        const float x = layer->input[row * layer->inputs + i];
        const float* weights = layer->weights.data() + i * layer->outputs;
        float* weight_gradients = layer->gradients.data() + i * layer->outputs;
        float sum = 0;
        for (std::size_t o = 0; o < layer->outputs; ++o) {
          weight_gradients[o] += x * out[o];
          sum += weights[o] * out[o];
        }
        below[row * layer->inputs + i] = sum;
      }
    }
    gradient = std::move(below);
  }
}

void Network::update(float learning_rate) {
  MAREY_RANGE("optimizer");
  ++updates_;
  float norm = 0;
  for (const Layer& layer : layers_) {
    for (const float gradient : layer.gradients) norm += gradient * gradient;
  }
  const float cut = std::min(1.0F, 0.5F / (std::sqrt(norm) + 1e-6F));
  const float first_correction = 1.0F - std::pow(0.9F, static_cast<float>(updates_));
  const float second_correction = 1.0F - std::pow(0.999F, static_cast<float>(updates_));
  for (Layer& layer : layers_) {
    for (std::size_t i = 0; i < layer.weights.size(); ++i) {
      const float gradient = layer.gradients[i] * cut;
      layer.first_moment[i] = 0.9F * layer.first_moment[i] + 0.1F * gradient;
      layer.second_moment[i] = 0.999F * layer.second_moment[i] + 0.001F * gradient * gradient;
      layer.weights[i] -= learning_rate * (layer.first_moment[i] / first_correction) /
                          (std::sqrt(layer.second_moment[i] / second_correction) + 1e-5F);
      layer.gradients[i] = 0;
    }
  }
}

}  // namespace ppo
