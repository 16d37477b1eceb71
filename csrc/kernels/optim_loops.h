/* Optimiser steps for one type T. p, g: parameter and gradient; a, b, c: states. h: as `prepare` in ops/optim.c lays it out, always
** starting with the rate, the gradient's sign (-1 maximises) and the weight decay. A decay of 0 is not multiplied in, so that an
** infinite parameter does not become NaN. No include guard: see optim_stamp.h. */

#define STEP(name) static void O_CAT(name, TYPE, ISA)(int64_t n, void *pv, const void *gv, void *av, void *bv, void *cv, const double *h)
#define OPEN \
  T *restrict p = pv; \
  const T *restrict g = gv; \
  const T lr = (T)h[0], sign = (T)h[1], wd = (T)h[2]; \
  (void)av; (void)bv; (void)cv
#define GRAD_I (wd != 0 ? sign * g[i] + wd * p[i] : sign * g[i])

/* a: momentum buffer or NULL. h: 3 momentum, 4 one minus dampening, 5 nesterov */
STEP(sgd) {
  OPEN;
  T *restrict a = av;
  const T momentum = (T)h[3], fresh = (T)h[4];
  const int nesterov = h[5] != 0;
  if (!a) {
    for (int64_t i = 0; i < n; i++) p[i] -= lr * GRAD_I;
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    const T d = GRAD_I, m = momentum * a[i] + fresh * d;
    a[i] = m;
    p[i] -= lr * (nesterov ? d + momentum * m : m);
  }
}

/* a, b: first and second moment; c: the largest second moment so far or NULL. h: 3 beta1, 4 beta2, 5 eps, 6 step size, 7 root of the
** second bias correction, 8 factor on the parameter (decoupled decay), 9 and 10 one minus the betas */
STEP(adam) {
  OPEN;
  T *restrict a = av, *restrict b = bv, *restrict c = cv;
  const T beta1 = (T)h[3], beta2 = (T)h[4], eps = (T)h[5], size = (T)h[6], root = (T)h[7], keep = (T)h[8], one1 = (T)h[9], one2 = (T)h[10];
  (void)lr;
  if (c) {
    for (int64_t i = 0; i < n; i++) {
      const T x = keep != 1 ? p[i] * keep : p[i], d = GRAD_I;
      a[i] = beta1 * a[i] + one1 * d;
      b[i] = beta2 * b[i] + one2 * d * d;
      c[i] = b[i] > c[i] || b[i] != b[i] ? b[i] : c[i];
      p[i] = x - size * (a[i] / (SQRT(c[i]) / root + eps));
    }
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    const T x = keep != 1 ? p[i] * keep : p[i], d = GRAD_I;
    const T m = beta1 * a[i] + one1 * d, v = beta2 * b[i] + one2 * d * d;
    a[i] = m;
    b[i] = v;
    p[i] = x - size * (m / (SQRT(v) / root + eps));
  }
}

/* a: mean square; b: momentum buffer or NULL; c: mean gradient (centered) or NULL. h: 3 alpha, 4 eps, 5 momentum, 6 one minus alpha */
STEP(rmsprop) {
  OPEN;
  T *restrict a = av, *restrict b = bv, *restrict c = cv;
  const T alpha = (T)h[3], eps = (T)h[4], momentum = (T)h[5], fresh = (T)h[6];
  if (!b && !c) {
    for (int64_t i = 0; i < n; i++) {
      const T d = GRAD_I, v = alpha * a[i] + fresh * d * d;
      a[i] = v;
      p[i] -= lr * (d / (SQRT(v) + eps));
    }
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    const T d = GRAD_I;
    T v = alpha * a[i] + fresh * d * d;
    a[i] = v;
    if (c) { c[i] = alpha * c[i] + fresh * d; v -= c[i] * c[i]; }
    T move = d / (SQRT(v) + eps);
    if (b) { move = momentum * b[i] + move; b[i] = move; }
    p[i] -= lr * move;
  }
}

/* a: sum of squares. h: 3 decayed rate, 4 eps */
STEP(adagrad) {
  OPEN;
  T *restrict a = av;
  const T rate = (T)h[3], eps = (T)h[4];
  (void)lr;
  for (int64_t i = 0; i < n; i++) {
    const T d = GRAD_I;
    a[i] += d * d;
    p[i] -= rate * (d / (SQRT(a[i]) + eps));
  }
}

/* a: mean square of gradients; b: of moves. h: 3 rho, 4 eps, 5 one minus rho */
STEP(adadelta) {
  OPEN;
  T *restrict a = av, *restrict b = bv;
  const T rho = (T)h[3], eps = (T)h[4], fresh = (T)h[5];
  for (int64_t i = 0; i < n; i++) {
    const T d = GRAD_I;
    a[i] = rho * a[i] + fresh * d * d;
    const T move = SQRT(b[i] + eps) / SQRT(a[i] + eps) * d;
    b[i] = rho * b[i] + fresh * move * move;
    p[i] -= lr * move;
  }
}

/* a: first moment; b: infinity norm. h: 3 beta1, 4 beta2, 5 eps, 6 rate over the bias correction, 7 one minus beta1 */
STEP(adamax) {
  OPEN;
  T *restrict a = av, *restrict b = bv;
  const T beta1 = (T)h[3], beta2 = (T)h[4], eps = (T)h[5], size = (T)h[6], one1 = (T)h[7];
  (void)lr;
  for (int64_t i = 0; i < n; i++) {
    const T d = GRAD_I, old = beta2 * b[i], now = ABS(d) + eps;
    a[i] = beta1 * a[i] + one1 * d;
    b[i] = old > now || old != old ? old : now;
    p[i] -= size * (a[i] / b[i]);
  }
}

/* a, b: moments. h: 3 beta1, 4 beta2, 5 eps, 6 factor of the gradient, 7 factor of the first moment, 8 second bias correction, 9 and 10
** one minus the betas, 11 factor on the parameter (decoupled decay) */
STEP(nadam) {
  OPEN;
  T *restrict a = av, *restrict b = bv;
  const T beta1 = (T)h[3], beta2 = (T)h[4], eps = (T)h[5], of_grad = (T)h[6], of_mean = (T)h[7], correction = (T)h[8];
  const T one1 = (T)h[9], one2 = (T)h[10], keep = (T)h[11];
  (void)lr;
  for (int64_t i = 0; i < n; i++) {
    const T x = keep != 1 ? p[i] * keep : p[i], d = GRAD_I;
    a[i] = beta1 * a[i] + one1 * d;
    b[i] = beta2 * b[i] + one2 * d * d;
    const T scale = SQRT(b[i] / correction) + eps;
    p[i] = x - of_grad * (d / scale) - of_mean * (a[i] / scale);
  }
}

/* a, b: moments. h: 3 beta1, 4 beta2, 5 eps, 6 rate over the first correction, 7 root of the second correction, 8 rectification (below 0:
** the variance is not to be trusted yet), 9 and 10 one minus the betas, 11 factor on the parameter (decoupled decay) */
STEP(radam) {
  OPEN;
  T *restrict a = av, *restrict b = bv;
  const T beta1 = (T)h[3], beta2 = (T)h[4], eps = (T)h[5], size = (T)h[6], root = (T)h[7], rect = (T)h[8];
  const T one1 = (T)h[9], one2 = (T)h[10], keep = (T)h[11];
  (void)lr;
  for (int64_t i = 0; i < n; i++) {
    const T x = keep != 1 ? p[i] * keep : p[i], d = GRAD_I;
    a[i] = beta1 * a[i] + one1 * d;
    b[i] = beta2 * b[i] + one2 * d * d;
    p[i] = x - (rect < 0 ? size * a[i] : size * a[i] * (root / (SQRT(b[i]) + eps)) * rect);
  }
}
#undef STEP
#undef OPEN
#undef GRAD_I
