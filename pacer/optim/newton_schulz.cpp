#include "pacer/optim/newton_schulz.h"

#include <algorithm>
#include <cmath>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <c10/core/InferenceMode.h>

#include "pacer/base/error.h"
#include "pacer/device/kernels.h"
#include "pacer/optim/kernels.h"
#include "pacer/optim/matrix_products.h"

namespace pacer::optim {
namespace {

constexpr double kEpsilon = 1e-7;

Coefficients with_safety(Coefficients coefficients, double safety) {
  for (Triple& t : coefficients) t.a /= safety, t.b /= std::pow(safety, 3), t.c /= std::pow(safety, 5);
  return coefficients;
}

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorKind::usage, "Newton-Schulz: " + what, hint);
}

[[noreturn]] void refuse_values(const std::string& name) {
  throw Error(
      ErrorKind::data,
      (name.empty() ? "Newton-Schulz: the matrix" : name + ": the update") + " holds values that are not finite",
      "nothing was changed; lower the learning rate or look at the batch that gave this gradient");
}

// x: [B, k, n] f32. Norm 1, or a little less; zero stays zero.
at::Tensor normalised(const at::Tensor& x, NewtonSchulzOptions::Normalisation normalisation, const std::string& name) {
  const at::Tensor largest = x.abs().amax({1, 2}, /*keepdim=*/true);
  if (!at::isfinite(largest).all().item<bool>()) refuse_values(name);
  const auto norm_of = [](const at::Tensor& t) { return t.square().sum({1, 2}, true).sqrt(); };
  if (normalisation == NewtonSchulzOptions::Normalisation::absolute) return x / (norm_of(x) + kEpsilon);
  const at::Tensor scaled = x / at::where(largest == 0, 1.0, largest);  // largest entry 1: the norm cannot overflow
  const at::Tensor norm = norm_of(scaled);
  return scaled / (at::where(norm == 0, 1.0, norm) * (1.0 + kEpsilon));
}

// The same on the CPU, in three passes over memory, with sums in f64; bf16 where that is the storage, else f32.
at::Tensor normalised_on_cpu(const at::Tensor& x, const NewtonSchulzOptions& options, const std::string& name) {
  constexpr int64_t kBlock = 1 << 15;  // elements of one sum; part of the order, so never a setting
  const bool bf16 = options.storage == at::kBFloat16;
  at::Tensor out = at::empty(x.sizes(), x.options().dtype(bf16 ? at::kBFloat16 : at::kFloat));
  const int64_t elements = x.size(1) * x.size(2), blocks = (elements + kBlock - 1) / kBlock;
  std::vector<double> sums(static_cast<size_t>(blocks));
  for (int64_t i = 0; i < x.size(0); ++i) {
    const float* values = x.const_data_ptr<float>() + i * elements;
    const float largest = largest_magnitude_of(values, elements);
    if (!std::isfinite(largest)) refuse_values(name);
    const bool absolute = options.normalisation == NewtonSchulzOptions::Normalisation::absolute;
    const float divisor = absolute || largest == 0 ? 1.0f : largest;
    at::parallel_for(0, blocks, 4, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t first = block * kBlock;
        sums[static_cast<size_t>(block)] =
            quotient_square_sum(values + first, std::min(kBlock, elements - first), divisor);
      }
    });
    double sum = 0;
    for (const double block : sums) sum += block;
    const double norm = std::sqrt(sum);
    const double factor = absolute ? 1.0 / (norm + kEpsilon) : norm == 0 ? 1.0 : 1.0 / (norm * (1.0 + kEpsilon));
    at::parallel_for(0, elements, kBlock, [&](int64_t begin, int64_t end) {
      const int64_t to = i * elements + begin;
      if (bf16) {
        auto* place = static_cast<uint16_t*>(out.mutable_data_ptr());
        normalised_bf16(values + begin, place + to, end - begin, divisor, static_cast<float>(factor));
      } else {
        normalised_f32(values + begin, out.mutable_data_ptr<float>() + to, end - begin, divisor,
                       static_cast<float>(factor));
      }
    });
  }
  return out;
}

at::Tensor direct(const Products& products, at::Tensor x, const NewtonSchulzOptions& options) {
  for (const Triple& t : options.coefficients) {
    const at::Tensor a = products.gram(x);
    const at::Tensor p = products.symmetric(a, a, t.c, a, t.b);
    x = products.product(p, x, x, t.a);
  }
  return x;
}

at::Tensor gram(const Products& products, at::Tensor x, const NewtonSchulzOptions& options) {
  const auto is_restart = [&](size_t i) {
    return std::ranges::find(options.restarts, static_cast<int64_t>(i)) != options.restarts.end();
  };
  const size_t iterations = options.coefficients.size();
  at::Tensor q, r = products.gram(x);
  for (size_t i = 0; i < iterations; ++i) {
    const Triple& t = options.coefficients[i];
    if (is_restart(i)) {
      x = products.product(q, x);
      r = products.gram(x);
      q = at::Tensor();
    }
    // All of these are polynomials of one symmetric matrix, so their products are symmetric. Z Q is not taken for it:
    // its rounding errors are not, and in bf16 a mirrored Q gives singular values of up to 1.5.
    const at::Tensor z = products.symmetric(r, r, t.c, r, t.b);
    q = q.defined() ? products.product(z, q, q, t.a) : products.plus_diagonal(z, t.a);
    if (i + 1 < iterations && !is_restart(i + 1)) {
      const at::Tensor half = products.symmetric(r, z, 1, r, t.a);
      r = products.symmetric(z, half, 1, half, t.a);
    }
  }
  return products.product(q, x);
}

at::Tensor iterate(const at::Tensor& x, const NewtonSchulzOptions& options) {
  const Products products(options.storage, x.device());
  const bool is_direct = form_for(x.size(1), x.size(2), options) == NewtonSchulzOptions::Form::direct;
  return is_direct ? direct(products, x, options) : gram(products, x, options);
}

// A few matrices at a time, so that what lies between two products stays in the cache: devices want them all at once,
// and to a processor a large batch only means more memory. The bits do not depend on it.
at::Tensor iterate_on_cpu(const at::Tensor& x, const NewtonSchulzOptions& options) {
  constexpr int64_t kBytesAtOnce = 2 << 20;
  const int64_t each = x.size(1) * x.size(2) * static_cast<int64_t>(x.element_size());
  const int64_t count = x.size(0), at_once = std::max<int64_t>(1, kBytesAtOnce / each),
                groups = (count + at_once - 1) / at_once;
  if (groups == 1) return iterate(x, options);
  at::Tensor all = at::empty_like(x);
  const bool inference = c10::InferenceMode::is_enabled();  // threads do not inherit it
  const auto compute = [&](int64_t begin, int64_t end) {
    const c10::InferenceMode mode(inference);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t first = group * at_once, size = std::min(at_once, count - first);
      all.narrow(0, first, size).copy_(iterate(x.narrow(0, first, size), options));
    }
  };
  if (groups >= at::get_num_threads()) {
    at::parallel_for(0, groups, 1, compute);  // products within a thread stay in it
  } else {
    compute(0, groups);
  }
  return all;
}

}  // namespace

const Coefficients& polar_express() {
  static const Coefficients coefficients = with_safety({{8.28721201814563, -23.595886519098837, 17.300387312530933},
                                                        {4.107059111542203, -2.9478499167379106, 0.5448431082926601},
                                                        {3.9486908534822946, -2.908902115962949, 0.5518191394370137},
                                                        {3.3184196573706015, -2.488488024314874, 0.51004894012372},
                                                        {2.300652019954817, -1.6689039845749493, 0.4188073119525673}},
                                                       1.05);
  return coefficients;
}

const Coefficients& you() {
  static const Coefficients coefficients = {{4.0848, -6.8946, 2.9270},
                                            {3.9505, -6.3029, 2.6377},
                                            {3.7418, -5.5913, 2.3037},
                                            {2.8769, -3.1427, 1.2046},
                                            {2.8366, -3.0525, 1.2012}};
  return coefficients;
}

Coefficients jordan(int64_t steps) { return Coefficients(static_cast<size_t>(steps), {3.4445, -4.7750, 2.0315}); }

Coefficients coefficients_of(const std::string& name) {
  if (name == "polar-express") return polar_express();
  if (name == "you") return you();
  if (name == "jordan") return jordan();
  refuse("coefficients '" + name + "' are not known; allowed: polar-express, you, jordan",
         "own triples are given as a list of [a, b, c], one per iteration");
}

void check_newton_schulz(const NewtonSchulzOptions& options) {
  const auto iterations = static_cast<int64_t>(options.coefficients.size());
  if (iterations == 0) refuse("no coefficients, at least one triple is needed", {});
  for (const Triple& t : options.coefficients) {
    if (std::isfinite(t.a) && std::isfinite(t.b) && std::isfinite(t.c)) continue;
    refuse("a coefficient is not finite", {});
  }
  int64_t last = 0;
  for (const int64_t restart : options.restarts) {
    if (restart <= last || restart >= iterations) {
      refuse("restart before iteration " + std::to_string(restart) + ", allowed are ascending numbers from 1 to " +
                 std::to_string(iterations - 1),
             "iterations count from 0 and there are as many as triples");
    }
    last = restart;
  }
  const bool known = options.storage == at::kFloat || options.storage == at::kBFloat16 || options.storage == at::kHalf;
  if (!known) refuse(c10::str("storage in ", options.storage, ", allowed: f32, bf16, f16"), {});
  if (options.form != NewtonSchulzOptions::Form::direct && options.storage == at::kBFloat16 &&
      options.restarts.empty()) {
    refuse("the Gram form in bf16 without a restart diverges on badly conditioned matrices",
           "set restarts to [2], or store in f32, or use the direct form");
  }
}

NewtonSchulzOptions::Form form_for(int64_t rows, int64_t columns, const NewtonSchulzOptions& options) {
  if (options.form != NewtonSchulzOptions::Form::automatic) return options.form;
  NewtonSchulzOptions direct = options, gram = options;
  direct.form = NewtonSchulzOptions::Form::direct, gram.form = NewtonSchulzOptions::Form::gram;
  const bool cheaper = newton_schulz_flops(rows, columns, direct) <= newton_schulz_flops(rows, columns, gram);
  return cheaper ? direct.form : gram.form;
}

double newton_schulz_flops(int64_t rows, int64_t columns, const NewtonSchulzOptions& options) {
  const auto k = static_cast<double>(std::min(rows, columns)), n = static_cast<double>(std::max(rows, columns));
  const double gram = k * (k + 1) * n, symmetric = k * (k + 1) * k, product = 2 * k * k * n;
  const auto iterations = static_cast<double>(options.coefficients.size());
  if (form_for(rows, columns, options) == NewtonSchulzOptions::Form::direct)
    return iterations * (gram + symmetric + product);
  const double windows = 1 + static_cast<double>(options.restarts.size());
  // R R of each iteration; Z Q and the two products of the next R of each but the last one of a window.
  return windows * (gram + product) + iterations * symmetric + (iterations - windows) * (2 * k * k * k + 2 * symmetric);
}

at::Tensor newton_schulz(const at::Tensor& matrices, const NewtonSchulzOptions& options, const std::string& name) {
  check_newton_schulz(options);
  if (matrices.dim() != 2 && matrices.dim() != 3) {
    throw Error(ErrorKind::bug,
                c10::str("newton_schulz: ", matrices.dim(), " dimensions, expected [m, n] or [B, m, n]"));
  }
  if (matrices.numel() == 0) return at::empty_like(matrices);
  const bool batch = matrices.dim() == 3;
  at::Tensor x = (batch ? matrices : matrices.unsqueeze(0)).detach().to(at::kFloat);
  const bool tall = x.size(1) > x.size(2);
  if (tall) x = x.transpose(1, 2);
  x = x.contiguous();
  x = Products(options.storage, x.device())
          .store(device::in_host_memory(x) ? normalised_on_cpu(x, options, name)
                                           : normalised(x, options.normalisation, name));
  x = device::in_host_memory(x) ? iterate_on_cpu(x, options) : iterate(x, options);
  if (tall) x = x.transpose(1, 2);
  return (batch ? x : x.squeeze(0)).to(matrices.scalar_type()).contiguous();
}

}  // namespace pacer::optim
