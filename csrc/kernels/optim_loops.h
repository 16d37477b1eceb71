/* Optimiser steps for one type T. p, g: parameter and gradient; a, b, c: states. h: as `prepare` in ops/optim.c lays it out, always
** starting with the rate, the gradient's sign (-1 maximises) and the weight decay. A decay of 0 is not multiplied in, so that an
** infinite parameter does not become NaN. No include guard: see optim_stamp.h. */

#define STEP(name) static void O_CAT(name, TYPE, ISA)(int64_t n, void *pv, const void *gv, void *av, void *bv, void *cv, const double *h)
#define OPEN \
  T *restrict p = pv; \
  const T *restrict g = gv; \
  const T lr = (T)h[0], sign = (T)h[1], wd = (T)h[2]; \
  (void)av; (void)bv; (void)cv; (void)lr
/* The body for each element, d its gradient: two loops, since a condition inside would keep them from being vector instructions. */
#define O_EACH(...) \
  if (wd != 0) { SC_IVDEP for (int64_t i = 0; i < n; i++) { const T d = MADD(wd, p[i], sign * g[i]); __VA_ARGS__ } } \
  else { SC_IVDEP for (int64_t i = 0; i < n; i++) { const T d = sign * g[i]; __VA_ARGS__ } }

/* a: momentum buffer or NULL. h: 3 momentum, 4 one minus dampening, 5 nesterov */
STEP(sgd) {
  OPEN;
  T *restrict a = av;
  const T momentum = (T)h[3], fresh = (T)h[4];
  if (!a) { O_EACH(p[i] -= lr * d;) }
  else if (h[5] != 0) { O_EACH(const T m = MADD(momentum, a[i], fresh * d); a[i] = m; p[i] -= lr * (d + momentum * m);) }
  else { O_EACH(const T m = MADD(momentum, a[i], fresh * d); a[i] = m; p[i] -= lr * m;) }
}

/* a, b: first and second moment; c: the largest second moment so far or NULL. h: 3 beta1, 4 beta2, 5 eps, 6 step size, 7 root of the
** second bias correction, 8 factor on the parameter (decoupled decay), 9 and 10 one minus the betas */
STEP(adam) {
  OPEN;
  T *restrict a = av, *restrict b = bv, *restrict c = cv;
  const T beta1 = (T)h[3], beta2 = (T)h[4], eps = (T)h[5], size = (T)h[6], root = (T)(1 / h[7]), keep = (T)h[8], one1 = (T)h[9], one2 = (T)h[10];
  if (c) {
    O_EACH(const T m = MADD(beta1, a[i], one1 * d); const T v = MADD(beta2, b[i], one2 * d * d); const T w = !(v <= c[i]) ? v : c[i];
         a[i] = m; b[i] = v; c[i] = w; p[i] = MADD(-size, m / (SQRT(w) * root + eps), p[i] * keep);)
  } else {
    O_EACH(const T m = MADD(beta1, a[i], one1 * d); const T v = MADD(beta2, b[i], one2 * d * d);
         a[i] = m; b[i] = v; p[i] = MADD(-size, m / (SQRT(v) * root + eps), p[i] * keep);)
  }
}

/* a: mean square; b: momentum buffer or NULL; c: mean gradient (centered) or NULL. h: 3 alpha, 4 eps, 5 momentum, 6 one minus alpha */
STEP(rmsprop) {
  OPEN;
  T *restrict a = av, *restrict b = bv, *restrict c = cv;
  const T alpha = (T)h[3], eps = (T)h[4], momentum = (T)h[5], fresh = (T)h[6];
  if (!b && !c) {
    O_EACH(const T v = MADD(alpha, a[i], fresh * d * d); a[i] = v; p[i] -= lr * (d / (SQRT(v) + eps));)
  } else if (!c) {
    O_EACH(const T v = MADD(alpha, a[i], fresh * d * d); a[i] = v; const T m = momentum * b[i] + d / (SQRT(v) + eps); b[i] = m; p[i] -= lr * m;)
  } else if (!b) {
    O_EACH(const T v = MADD(alpha, a[i], fresh * d * d); a[i] = v; const T q = MADD(alpha, c[i], fresh * d); c[i] = q;
         p[i] -= lr * (d / (SQRT(v - q * q) + eps));)
  } else {
    O_EACH(const T v = MADD(alpha, a[i], fresh * d * d); a[i] = v; const T q = MADD(alpha, c[i], fresh * d); c[i] = q;
         const T m = momentum * b[i] + d / (SQRT(v - q * q) + eps); b[i] = m; p[i] -= lr * m;)
  }
}

/* a: sum of squares. h: 3 decayed rate, 4 eps */
STEP(adagrad) {
  OPEN;
  T *restrict a = av;
  const T rate = (T)h[3], eps = (T)h[4];
  O_EACH(const T v = a[i] + d * d; a[i] = v; p[i] -= rate * (d / (SQRT(v) + eps));)
}

/* a: mean square of gradients; b: of moves. h: 3 rho, 4 eps, 5 one minus rho */
STEP(adadelta) {
  OPEN;
  T *restrict a = av, *restrict b = bv;
  const T rho = (T)h[3], eps = (T)h[4], fresh = (T)h[5];
  O_EACH(const T v = MADD(rho, a[i], fresh * d * d); const T move = SQRT(b[i] + eps) / SQRT(v + eps) * d;
       a[i] = v; b[i] = MADD(rho, b[i], fresh * move * move); p[i] -= lr * move;)
}

/* a: first moment; b: infinity norm. h: 3 beta1, 4 beta2, 5 eps, 6 rate over the bias correction, 7 one minus beta1 */
STEP(adamax) {
  OPEN;
  T *restrict a = av, *restrict b = bv;
  const T beta1 = (T)h[3], beta2 = (T)h[4], eps = (T)h[5], size = (T)h[6], one1 = (T)h[7];
  O_EACH(const T m = MADD(beta1, a[i], one1 * d); const T old = beta2 * b[i]; const T now = ABS(d) + eps; const T u = !(old <= now) ? old : now;
       a[i] = m; b[i] = u; p[i] -= size * (m / u);)
}

/* a, b: moments. h: 3 beta1, 4 beta2, 5 eps, 6 factor of the gradient, 7 factor of the first moment, 8 second bias correction, 9 and 10
** one minus the betas, 11 factor on the parameter (decoupled decay) */
STEP(nadam) {
  OPEN;
  T *restrict a = av, *restrict b = bv;
  const T beta1 = (T)h[3], beta2 = (T)h[4], eps = (T)h[5], of_grad = (T)h[6], of_mean = (T)h[7], correction = (T)(1 / h[8]);
  const T one1 = (T)h[9], one2 = (T)h[10], keep = (T)h[11];
  O_EACH(const T m = MADD(beta1, a[i], one1 * d); const T v = MADD(beta2, b[i], one2 * d * d); a[i] = m; b[i] = v;
       p[i] = p[i] * keep - MADD(of_grad, d, of_mean * m) / (SQRT(v * correction) + eps);)
}

/* a, b: moments. h: 3 beta1, 4 beta2, 5 eps, 6 rate over the first correction, 7 root of the second correction, 8 rectification (below 0:
** the variance is not to be trusted yet), 9 and 10 one minus the betas, 11 factor on the parameter (decoupled decay) */
STEP(radam) {
  OPEN;
  T *restrict a = av, *restrict b = bv;
  const T beta1 = (T)h[3], beta2 = (T)h[4], eps = (T)h[5], size = (T)h[6], scaled = (T)(h[6] * h[7] * h[8]);
  const T one1 = (T)h[9], one2 = (T)h[10], keep = (T)h[11];
  if (h[8] < 0) {
    O_EACH(const T m = MADD(beta1, a[i], one1 * d); a[i] = m; b[i] = MADD(beta2, b[i], one2 * d * d); p[i] = MADD(-size, m, p[i] * keep);)
  } else {
    O_EACH(const T m = MADD(beta1, a[i], one1 * d); const T v = MADD(beta2, b[i], one2 * d * d); a[i] = m; b[i] = v;
         p[i] = MADD(-scaled, m / (SQRT(v) + eps), p[i] * keep);)
  }
}
#undef STEP
#undef OPEN
#undef O_EACH
