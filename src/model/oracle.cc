#include "model/oracle.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "base/error.h"
#include "numerics/rope.h"
#include "numerics/round.h"
#include "tensor/dequantize.h"

namespace lockstep {
namespace {

using Vector = std::vector<float>;

// The model's roundings evaluate each function in f64 from an f32 argument and round to f32.
float sigmoid(float z) { return static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(z)))); }
float silu(float z) { return static_cast<float>(z / (1.0 + std::exp(-static_cast<double>(z)))); }
float softplus(float z) { return z > 20 ? z : static_cast<float>(std::log1p(std::exp(static_cast<double>(z)))); }

float dot(const float* x, const float* y, int n) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * y[i];
  return static_cast<float>(sum);
}

Vector rms(const float* x, int n, const float* weight, float epsilon) {
  double sum = 0;
  for (int i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  const float r = static_cast<float>(1.0 / std::sqrt(sum / n + epsilon));
  Vector y(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) y[i] = weight == nullptr ? x[i] * r : (x[i] * r) * weight[i];
  return y;
}

void rotate(float* x, int width, int rotary, const Vector& frequencies, Position position, bool inverse) {
  for (int i = 0; i < rotary / 2; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    const double c = static_cast<float>(std::cos(static_cast<double>(angle)));
    const double s =
        static_cast<float>(inverse ? -std::sin(static_cast<double>(angle)) : std::sin(static_cast<double>(angle)));
    float& a = x[width - rotary + 2 * i];
    float& b = x[width - rotary + 2 * i + 1];
    const double a0 = a, b0 = b;
    a = static_cast<float>(a0 * c - b0 * s);
    b = static_cast<float>(a0 * s + b0 * c);
  }
}

std::uint32_t block_max(const float* x, int n) {
  std::uint32_t most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, magnitude_bits(x[i]));
  return most;
}

void simulate_fp8(float* x, int channels) {
  for (int begin = 0; begin < channels; begin += 64) {
    const int n = std::min(64, channels - begin);
    const int exponent = fp8_exponent(block_max(x + begin, n));
    for (int i = 0; i < n; ++i) x[begin + i] = fp8_value(fp8_code(x[begin + i], exponent), exponent);
  }
}

void simulate_fp4(float* x, int width) {
  for (int stride = 1; stride < width; stride *= 2)
    for (int i = 0; i < width; ++i)
      if ((i & stride) == 0) {
        const float a = x[i], b = x[i + stride];
        x[i] = a + b;
        x[i + stride] = a - b;
      }
  const float norm = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  for (int i = 0; i < width; ++i) x[i] *= norm;
  for (int begin = 0; begin < width; begin += 32) {
    const int exponent = fp4_exponent(block_max(x + begin, 32));
    for (int i = begin; i < begin + 32; ++i) x[i] = fp4_value(fp4_code(x[i], exponent), exponent);
  }
}

/// A compressor: every token's inputs are kept, every finished window's row too.
struct Compressor {
  std::vector<Vector> values, gates, rows;
};

struct LayerState {
  std::vector<Vector> raw;
  Compressor rows, keys;
};

class Oracle {
 public:
  Oracle(const Gguf& file, const Config& config, Mode mode, DType meaning_of_107)
      : file_(file), c_(config), mode_(mode), meaning_of_107_(meaning_of_107) {
    plain_ = rope_frequencies(c_.rope_base, c_.rotary, std::nullopt);
    yarn_ = rope_frequencies(c_.compressed_rope_base, c_.rotary,
                             YarnScaling{c_.yarn_factor, c_.yarn_original, c_.yarn_beta_fast, c_.yarn_beta_slow});
    layers_.resize(c_.layers.size());
  }

  Vector next(Token token, Position position) {
    std::vector<Vector> streams(static_cast<std::size_t>(c_.streams), row_of("token_embd.weight", token));
    for (int l = 0; l < static_cast<int>(c_.layers.size()); ++l) {
      const std::string prefix = "blk." + std::to_string(l) + ".";
      sublayer(streams, prefix + "hc_attn", prefix + "attn_norm.weight",
               [&](const Vector& a) { return attention(l, prefix, a, position); });
      sublayer(streams, prefix + "hc_ffn", prefix + "ffn_norm.weight",
               [&](const Vector& x) { return mixture(l, prefix, x, token); });
    }
    const Vector m = mixes(streams, "output_hc", c_.streams);
    const Vector& scale = all("output_hc_scale.weight");
    const Vector& base = all("output_hc_base.weight");
    Vector pre(m.size());
    for (std::size_t s = 0; s < m.size(); ++s) pre[s] = sigmoid(m[s] * scale[0] + base[s]) + c_.hyper_epsilon;
    const Vector h = collapse(streams, pre);
    return multiply("output.weight", rms(h.data(), c_.width, all("output_norm.weight").data(), c_.norm_epsilon).data());
  }

 private:
  // ---- weights ----

  /// One row of a tensor. The formats with side tables are not the oracle's business.
  void widen(const GgufTensor& tensor, std::int64_t r, float* out) const {
    if (tensor.dtype == DType::rocmfp3_mix || tensor.dtype == DType::rocmfp2_mix)
      throw Error(Error::Kind::unsupported,
                  "tensor " + std::string(tensor.name) + ": the oracle does not read formats with side tables");
    const DType dtype = tensor.dtype == DType::rocmfp2 ? meaning_of_107_ : tensor.dtype;
    dequantize_row(dtype, tensor.bytes.data() + static_cast<std::size_t>(r) * row_bytes(tensor.dtype, tensor.ne[0]),
                   tensor.ne[0], out);
  }

  /// A tensor widened to f32; kept, because a test model is small and a large one is read once a token anyway.
  const Vector& all(const std::string& name) {
    auto [at, fresh] = kept_.try_emplace(name);
    if (fresh) {
      const GgufTensor& tensor = file_.tensor(name);
      at->second.resize(static_cast<std::size_t>(tensor.ne[0] * tensor.rows()));
      for (std::int64_t r = 0; r < tensor.rows(); ++r)
        widen(tensor, r, &at->second[static_cast<std::size_t>(r * tensor.ne[0])]);
    }
    return at->second;
  }
  Vector row_of(const std::string& name, std::int64_t r) {
    const GgufTensor& tensor = file_.tensor(name);
    Vector row(static_cast<std::size_t>(tensor.ne[0]));
    widen(tensor, r, row.data());
    return row;
  }
  /// Rows [first, first + count) of a matrix, times x.
  Vector multiply(const std::string& name, const float* x, std::int64_t first = 0, std::int64_t count = -1) {
    const GgufTensor& tensor = file_.tensor(name);
    const int width = static_cast<int>(tensor.ne[0]);
    const float* w = all(name).data();
    if (count < 0) count = tensor.rows();
    Vector y(static_cast<std::size_t>(count));
    for (std::int64_t r = 0; r < count; ++r) y[r] = dot(w + (first + r) * width, x, width);
    return y;
  }

  // ---- hyper-connections ----

  Vector mixes(const std::vector<Vector>& streams, const std::string& name, int count) {
    Vector flat;
    for (const Vector& s : streams) flat.insert(flat.end(), s.begin(), s.end());
    double sum = 0;
    for (float v : flat) sum += static_cast<double>(v) * v;
    const float r = static_cast<float>(1.0 / std::sqrt(sum / static_cast<double>(flat.size()) + c_.norm_epsilon));
    Vector m = multiply(name + "_fn.weight", flat.data());
    LOCKSTEP_CHECK(static_cast<int>(m.size()) == count);
    for (float& v : m) v *= r;
    return m;
  }

  Vector collapse(const std::vector<Vector>& streams, const Vector& pre) const {
    Vector u(static_cast<std::size_t>(c_.width));
    for (int d = 0; d < c_.width; ++d) {
      double sum = 0;
      for (int s = 0; s < c_.streams; ++s) sum += static_cast<double>(pre[s]) * streams[s][d];
      u[d] = static_cast<float>(sum);
    }
    return u;
  }

  void sublayer(std::vector<Vector>& streams, const std::string& hyper, const std::string& norm,
                const std::function<Vector(const Vector&)>& body) {
    const int n = c_.streams;
    const Vector m = mixes(streams, hyper, 2 * n + n * n);
    const Vector& scale = all(hyper + "_scale.weight");
    const Vector& base = all(hyper + "_base.weight");
    Vector pre(n), post(n);
    std::vector<Vector> comb(n, Vector(n));
    for (int s = 0; s < n; ++s) {
      pre[s] = sigmoid(m[s] * scale[0] + base[s]) + c_.hyper_epsilon;
      post[s] = 2.0f * sigmoid(m[n + s] * scale[1] + base[n + s]);
    }
    for (int j = 0; j < n; ++j) {
      for (int q = 0; q < n; ++q) comb[j][q] = m[2 * n + n * j + q] * scale[2] + base[2 * n + n * j + q];
      const float most = *std::max_element(comb[j].begin(), comb[j].end());
      for (float& v : comb[j]) v = static_cast<float>(std::exp(static_cast<double>(v - most)));
      const float sum = std::accumulate(comb[j].begin(), comb[j].end(), 0.0f);
      for (float& v : comb[j]) v = v / sum + c_.hyper_epsilon;
    }
    const auto columns = [&] {
      for (int q = 0; q < n; ++q) {
        float sum = 0;
        for (int j = 0; j < n; ++j) sum += comb[j][q];
        for (int j = 0; j < n; ++j) comb[j][q] /= sum + c_.hyper_epsilon;
      }
    };
    columns();
    for (int i = 1; i < c_.sinkhorn_iterations; ++i) {
      for (int j = 0; j < n; ++j) {
        const float sum = std::accumulate(comb[j].begin(), comb[j].end(), 0.0f);
        for (float& v : comb[j]) v /= sum + c_.hyper_epsilon;
      }
      columns();
    }
    const Vector u = collapse(streams, pre);
    const Vector y = body(rms(u.data(), c_.width, all(norm).data(), c_.norm_epsilon));
    std::vector<Vector> next = streams;
    for (int q = 0; q < n; ++q)
      for (int d = 0; d < c_.width; ++d) {
        double sum = static_cast<double>(post[q]) * y[d];
        for (int j = 0; j < n; ++j) sum += static_cast<double>(comb[j][q]) * streams[j][d];
        next[q][d] = static_cast<float>(sum);
      }
    streams = std::move(next);
  }

  // ---- attention ----

  /// Takes in one token; appends a row when it completes a window. Rows stand at the window's first position.
  void feed(Compressor& state, const std::string& name, const Vector& a, Position position, int ratio, int width,
            bool is_key) {
    state.values.push_back(multiply(name + "_kv.weight", a.data()));
    Vector gate = multiply(name + "_gate.weight", a.data());
    const Vector& bias = all(name + "_ape.weight");
    for (std::size_t d = 0; d < gate.size(); ++d)
      gate[d] += bias[static_cast<std::size_t>(position % ratio) * gate.size() + d];
    state.gates.push_back(std::move(gate));
    if ((position + 1) % ratio != 0) return;
    const Position begin = position + 1 - ratio;
    struct Candidate {
      Position p;
      int offset;
    };
    std::vector<Candidate> candidates;
    if (ratio == 4)
      for (Position p = begin - 4; p < begin; ++p)
        if (p >= 0) candidates.push_back({p, 0});
    for (Position p = begin; p <= position; ++p) candidates.push_back({p, ratio == 4 ? width : 0});
    Vector pooled(static_cast<std::size_t>(width));
    for (int d = 0; d < width; ++d) {
      float most = -INFINITY;
      for (const Candidate& c : candidates) most = std::max(most, state.gates[c.p][c.offset + d]);
      double sum = 0, weights = 0;
      for (const Candidate& c : candidates) {
        const float weight = static_cast<float>(std::exp(static_cast<double>(state.gates[c.p][c.offset + d] - most)));
        weights += weight;
        sum += static_cast<double>(weight) * state.values[c.p][c.offset + d];
      }
      pooled[d] = static_cast<float>(sum / weights);
    }
    Vector row = rms(pooled.data(), width, all(name + "_norm.weight").data(), c_.norm_epsilon);
    rotate(row.data(), width, c_.rotary, yarn_, begin, false);
    if (mode_ == Mode::official) {
      if (is_key)
        simulate_fp4(row.data(), width);
      else
        simulate_fp8(row.data(), width - c_.rotary);
    }
    state.rows.push_back(std::move(row));
  }

  std::vector<int> select(const LayerState& state, const std::string& prefix, const Vector& qr, const Vector& a,
                          Position position) {
    const int visible = static_cast<int>((position + 1) / 4);
    std::vector<int> ids(static_cast<std::size_t>(visible));
    std::iota(ids.begin(), ids.end(), 0);
    if (visible <= c_.index_top_k) return ids;
    Vector q = multiply(prefix + "indexer.attn_q_b.weight", qr.data());
    for (int h = 0; h < c_.index_heads; ++h) {
      rotate(&q[h * c_.index_width], c_.index_width, c_.rotary, yarn_, position, false);
      if (mode_ == Mode::official) simulate_fp4(&q[h * c_.index_width], c_.index_width);
    }
    Vector weights = multiply(prefix + "indexer.proj.weight", a.data());
    const float factor = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c_.index_heads) * c_.index_width));
    for (float& w : weights) w *= factor;
    Vector scores(static_cast<std::size_t>(visible));
    for (int r = 0; r < visible; ++r) {
      double sum = 0;
      for (int h = 0; h < c_.index_heads; ++h)
        sum += static_cast<double>(weights[h]) *
               std::max(0.0f, dot(&q[h * c_.index_width], state.keys.rows[r].data(), c_.index_width));
      scores[r] = static_cast<float>(sum);
    }
    std::stable_sort(ids.begin(), ids.end(), [&](int x, int y) { return scores[x] > scores[y]; });
    ids.resize(static_cast<std::size_t>(c_.index_top_k));
    std::sort(ids.begin(), ids.end());
    return ids;
  }

  Vector attention(int l, const std::string& prefix, const Vector& a, Position position) {
    LayerState& state = layers_[l];
    const int ratio = c_.layers[l].ratio, width = c_.head_width;
    const Vector& frequencies = ratio == 0 ? plain_ : yarn_;
    const Vector low = multiply(prefix + "attn_q_a.weight", a.data());
    const Vector qr = rms(low.data(), c_.query_rank, all(prefix + "attn_q_a_norm.weight").data(), c_.norm_epsilon);
    Vector q = multiply(prefix + "attn_q_b.weight", qr.data());
    const Vector kv = multiply(prefix + "attn_kv.weight", a.data());
    Vector row = rms(kv.data(), width, all(prefix + "attn_kv_a_norm.weight").data(), c_.norm_epsilon);
    rotate(row.data(), width, c_.rotary, frequencies, position, false);
    if (mode_ == Mode::official) simulate_fp8(row.data(), width - c_.rotary);
    state.raw.push_back(std::move(row));
    if (ratio != 0) feed(state.rows, prefix + "attn_compressor", a, position, ratio, width, false);
    if (ratio == 4) feed(state.keys, prefix + "indexer_compressor", a, position, ratio, c_.index_width, true);

    std::vector<const float*> rows;
    for (Position p = std::max<Position>(0, position - c_.window + 1); p <= position; ++p)
      rows.push_back(state.raw[p].data());
    if (ratio == 128)
      for (const Vector& r : state.rows.rows) rows.push_back(r.data());
    if (ratio == 4)
      for (int r : select(state, prefix, qr, a, position)) rows.push_back(state.rows.rows[r].data());

    const float scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
    const Vector& sinks = all(prefix + "attn_sinks.weight");
    Vector out(q.size());
    for (int h = 0; h < c_.heads; ++h) {
      const Vector head = rms(&q[h * width], width, nullptr, c_.norm_epsilon);
      Vector turned = head;
      rotate(turned.data(), width, c_.rotary, frequencies, position, false);
      float most = sinks[h];
      Vector z;
      for (const float* r : rows) {
        z.push_back(dot(turned.data(), r, width) * scale);
        most = std::max(most, z.back());
      }
      double denominator = static_cast<float>(std::exp(static_cast<double>(sinks[h] - most)));
      for (float& v : z) {
        v = static_cast<float>(std::exp(static_cast<double>(v - most)));
        denominator += v;
      }
      for (int d = 0; d < width; ++d) {
        double sum = 0;
        for (std::size_t r = 0; r < rows.size(); ++r) sum += static_cast<double>(z[r]) * rows[r][d];
        out[h * width + d] = static_cast<float>(sum / denominator);
      }
      rotate(&out[h * width], width, c_.rotary, frequencies, position, true);
    }
    const int group_width = c_.heads / c_.output_groups * width;
    Vector lowered;
    for (int g = 0; g < c_.output_groups; ++g) {
      const Vector part = multiply(prefix + "attn_output_a.weight", &out[g * group_width],
                                   static_cast<std::int64_t>(g) * c_.output_rank, c_.output_rank);
      lowered.insert(lowered.end(), part.begin(), part.end());
    }
    return multiply(prefix + "attn_output_b.weight", lowered.data());
  }

  // ---- experts ----

  Vector expert(const std::string& gate, const std::string& up, const std::string& down, int e, const Vector& x,
                float weight, float limit) {
    const int f = c_.expert_width;
    Vector g = multiply(gate, x.data(), static_cast<std::int64_t>(e) * f, f);
    const Vector u = multiply(up, x.data(), static_cast<std::int64_t>(e) * f, f);
    for (int i = 0; i < f; ++i) g[i] = (silu(std::min(g[i], limit)) * std::clamp(u[i], -limit, limit)) * weight;
    return multiply(down, g.data(), static_cast<std::int64_t>(e) * c_.width, c_.width);
  }

  Vector mixture(int l, const std::string& prefix, const Vector& x, Token token) {
    Vector p = multiply(prefix + "ffn_gate_inp.weight", x.data());
    for (float& v : p) v = std::sqrt(softplus(v));
    std::vector<int> chosen(static_cast<std::size_t>(c_.experts));
    std::iota(chosen.begin(), chosen.end(), 0);
    if (c_.layers[l].hash_routed) {
      const GgufTensor& table = file_.tensor(prefix + "ffn_gate_tid2eid.weight");
      chosen.resize(static_cast<std::size_t>(c_.experts_used));
      std::memcpy(chosen.data(), table.bytes.data() + static_cast<std::size_t>(token) * chosen.size() * 4,
                  chosen.size() * 4);
    } else {
      const Vector& bias = all(prefix + "exp_probs_b.bias");
      std::stable_sort(chosen.begin(), chosen.end(), [&](int a, int b) { return p[a] + bias[a] > p[b] + bias[b]; });
      chosen.resize(static_cast<std::size_t>(c_.experts_used));
    }
    float sum = 0;
    for (int e : chosen) sum += p[e];
    sum = std::max(sum, 0x1p-14f);
    std::sort(chosen.begin(), chosen.end());
    Vector y(static_cast<std::size_t>(c_.width));
    for (int e : chosen) {
      const Vector part =
          expert(prefix + "ffn_gate_exps.weight", prefix + "ffn_up_exps.weight", prefix + "ffn_down_exps.weight", e, x,
                 (p[e] / sum) * c_.route_scale, c_.layers[l].clamp);
      for (int d = 0; d < c_.width; ++d) y[d] += part[d];
    }
    const Vector part = expert(prefix + "ffn_gate_shexp.weight", prefix + "ffn_up_shexp.weight",
                               prefix + "ffn_down_shexp.weight", 0, x, 1.0f, c_.layers[l].shared_clamp);
    for (int d = 0; d < c_.width; ++d) y[d] += part[d];
    return y;
  }

  const Gguf& file_;
  const Config& c_;
  Mode mode_;
  DType meaning_of_107_;
  Vector plain_, yarn_;
  std::map<std::string, Vector> kept_;
  std::vector<LayerState> layers_;
};

}  // namespace

std::vector<float> oracle_logits(const Gguf& file, const Config& config, Mode mode, std::span<const Token> tokens,
                                 DType meaning_of_107) {
  Oracle oracle(file, config, mode, meaning_of_107);
  std::vector<float> out;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Vector logits = oracle.next(tokens[i], static_cast<Position>(i));
    out.insert(out.end(), logits.begin(), logits.end());
  }
  return out;
}

}  // namespace lockstep
