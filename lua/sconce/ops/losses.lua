--- The rarer losses, as lines over other ops. The ones that training loops live in are in csrc/ops/losses.c.
--- Shapes must be equal where elements are compared; a misspelt reduction is an error.
local sc = require "sconce"
local define = require "sconce.define"
local fault = require "sconce.fault"

local F = sc.functional

local REDUCE = { mean = function(x) return x:mean() end, sum = function(x) return x:sum() end, none = function(x) return x end }

local function reducer(name, reduction)
  return REDUCE[reduction] or fault.raise(name, "argument reduction: expected \"none\", \"mean\" or \"sum\", got %s",
    fault.describe(reduction))
end

local function shape(x) return table.concat(x.shape, ", ") end

local function same_shape(name, x, target)
  if shape(x) ~= shape(target) then
    fault.raise(name, "argument 2: the shape {%s} differs from the input's shape {%s}; a loss does not broadcast", shape(target), shape(x))
  end
end

--- max(x, 0) whose gradient at 0 is 1, as PyTorch's clamp.
local function hinge(x) return x:clamp(0) end

local function loss(signature, help, fn) define(F, "nn.functional." .. signature, help, fn) end

-- ---- distances

loss("pairwise_distance(x1, x2, p: number = 2.0, eps: float = 1e-6, keepdim: bool = false)",
  [[The p-norm of x1 - x2 + eps along the last dimension.
Example: sc.nn.functional.pairwise_distance(sc.ones(2, 3), sc.zeros(2, 3))]],
  function(a, b, p, eps, keepdim)
    return sc.linalg.vector_norm(a - b + eps, p, -1, keepdim)
  end)

loss("cosine_similarity(x1, x2, dim: dim = 1, eps: float = 1e-8)",
  [[The cosine of the angle between vectors along dim (the second when not given); norms count as eps at least. Shapes
broadcast first, so that a vector of one number counts as that number repeated.
Example: sc.nn.functional.cosine_similarity(sc.ones(2, 3), sc.ones(2, 3))]],
  function(a, b, dim, eps)
    local function unit(x)
      local norm = sc.linalg.vector_norm(x, 2, dim, true)
      local kept = norm:clamp(eps)
      return x / (norm + (kept - norm):detach())
    end
    if shape(a) ~= shape(b) then a, b = table.unpack(sc.broadcast_tensors(a, b)) end
    return (unit(a) * unit(b)):sum(dim)
  end)

-- ---- likelihoods

loss("poisson_nll_loss(x, target, log_input: bool = true, full: bool = false, eps: float = 1e-8, reduction: str = \"mean\")",
  [[Negative log-likelihood of counts: exp(x) - target x, or with log_input = false x - target log(x + eps).
full adds Stirling's approximation of log(target!) where target > 1.
Errors: shapes differ.
Example: sc.nn.functional.poisson_nll_loss(sc.zeros(3), sc.ones(3))]],
  function(x, target, log_input, full, eps, reduction)
    local reduce = reducer("poisson_nll_loss", reduction)
    same_shape("poisson_nll_loss", x, target)
    local y = log_input and x:exp() - sc.core.ops.zero_mul(target, x) or x - target * (x + eps):log()
    if full then
      local t = target:gt(1)
      local safe = sc.where(t, target, sc.ones_like(target))
      y = y + sc.where(t, safe * safe:log() - safe + (safe * (2 * math.pi)):log() * 0.5, 0.0)
    end
    return reduce(y)
  end)

loss("gaussian_nll_loss(x, target, var: tensor|number, full: bool = false, eps: float = 1e-6, reduction: str = \"mean\")",
  [[Negative log-likelihood of normal distributions with mean x and variance var: (log var + (x - target)² / var) / 2.
var: of x's shape, or with a last size of 1, or without the last size. It is kept above eps, without a gradient through that bound.
full adds log(2π) / 2.
Errors: shapes do not fit; a negative variance.
Example: sc.nn.functional.gaussian_nll_loss(sc.zeros(3), sc.ones(3), sc.ones(3))]],
  function(x, target, var, full, eps, reduction)
    local name = "gaussian_nll_loss"
    local reduce = reducer(name, reduction)
    if type(var) == "number" then var = sc.full(x.shape, var + 0.0, { dtype = x.dtype }) end
    local xs, vs = x.shape, var.shape
    if shape(x) ~= shape(var) then
      local most = table.move(xs, 1, #xs - 1, 1, {})
      if table.concat(most, ", ") == table.concat(vs, ", ") and #xs > 0 then var = var:unsqueeze(-1)
      else
        local one = table.move(most, 1, #most, 1, {})
        one[#xs] = 1
        if not (#xs > 0 and table.concat(one, ", ") == table.concat(vs, ", ")) then
          fault.raise(name, "argument 3 (var): shape {%s} does not fit the input's shape {%s}", shape(var), shape(x))
        end
      end
    end
    local d = x - target
    if shape(d) ~= shape(x) then
      fault.raise(name, "argument 2 (target): the shape {%s} does not broadcast to the input's shape {%s}", shape(target), shape(x))
    end
    var = sc.core.ops.within(var, 0, nil, "argument 3 (var)")
    local v = var + (var:clamp(eps) - var):detach()
    v = sc.where(var:lt(eps), v - v:detach() + eps, v)   -- exactly eps there, with var's gradient
    local y = (v:log() + d * d / v) * 0.5
    if full then y = y + 0.5 * math.log(2 * math.pi) end
    return reduce(y)
  end)

-- ---- margins

loss("soft_margin_loss(x, target, reduction: str = \"mean\")",
  [[log(1 + exp(-target x)) for targets of 1 and -1.
Errors: shapes differ.
Example: sc.nn.functional.soft_margin_loss(sc.zeros(3), sc.ones(3))]],
  function(x, target, reduction)
    local reduce = reducer("soft_margin_loss", reduction)
    same_shape("soft_margin_loss", x, target)
    return reduce(-F.logsigmoid(x * target))
  end)

loss("hinge_embedding_loss(x, target, margin: number = 1.0, reduction: str = \"mean\")",
  [[x where target is 1, max(0, margin - x) where it is -1.
Errors: shapes differ.
Example: sc.nn.functional.hinge_embedding_loss(sc.zeros(3), sc.ones(3))]],
  function(x, target, margin, reduction)
    local reduce = reducer("hinge_embedding_loss", reduction)
    same_shape("hinge_embedding_loss", x, target)
    return reduce(sc.where(target:ne(1), hinge(margin - x), 0.0) + sc.where(target:ne(-1), x, 0.0))
  end)

loss("margin_ranking_loss(input1, input2, target, margin: number = 0.0, reduction: str = \"mean\")",
  [[max(0, -target (input1 - input2) + margin): target 1 asks for input1 to be the larger one, -1 for the other.
Errors: shapes differ.
Example: sc.nn.functional.margin_ranking_loss(sc.zeros(3), sc.ones(3), sc.ones(3))]],
  function(a, b, target, margin, reduction)
    local reduce = reducer("margin_ranking_loss", reduction)
    same_shape("margin_ranking_loss", a, b)
    same_shape("margin_ranking_loss", a, target)
    return reduce(hinge(-target * (a - b) + margin))
  end)

loss("cosine_embedding_loss(input1, input2, target, margin: number = 0.0, reduction: str = \"mean\")",
  [[1 - cos(input1, input2) where target is 1, max(0, cos - margin) where it is -1.
Shapes: [N, D], [N, D], [N], or [D], [D], [].
Example: sc.nn.functional.cosine_embedding_loss(sc.ones(2, 3), sc.ones(2, 3), sc.ones(2))]],
  function(a, b, target, margin, reduction)
    local name = "cosine_embedding_loss"
    local reduce = reducer(name, reduction)
    local d = target:dim()
    if d > 1 then fault.raise(name, "argument 3 (target): expected at most 1 dimension, got shape {%s}", shape(target)) end
    if a:dim() ~= d + 1 or b:dim() ~= d + 1 then
      fault.raise(name, "expected inputs of %d dimensions for a target of shape {%s}, got {%s} and {%s}", d + 1, shape(target), shape(a),
        shape(b))
    end
    same_shape(name, a, b)
    if d == 1 and a:size(1) ~= target:size(1) then
      fault.raise(name, "argument 3 (target): the shape {%s} does not fit the inputs' shape {%s}", shape(target), shape(a))
    end
    local dim = d + 1
    local cos = (a * b):sum(dim) / (((a * a):sum(dim) + 1e-12) * ((b * b):sum(dim) + 1e-12)):sqrt()
    return reduce(sc.where(target:eq(1), 1 - cos, 0.0) + sc.where(target:eq(-1), hinge(cos - margin), 0.0))
  end)

loss("triplet_margin_loss(anchor, positive, negative, margin: number = 1.0, p: number = 2.0, eps: float = 1e-6, swap: bool = false, " ..
  "reduction: str = \"mean\")",
  [[max(0, d(anchor, positive) - d(anchor, negative) + margin), d the p-norm of the difference (+ eps) along the last dimension.
swap: the negative's distance is the smaller of those to anchor and positive.
Errors: shapes differ.
Source: Balntas et al. 2016, "Learning local feature descriptors with triplets and shallow convolutional neural networks".
Example: sc.nn.functional.triplet_margin_loss(sc.ones(2, 3), sc.ones(2, 3), sc.zeros(2, 3))]],
  function(anchor, positive, negative, margin, p, eps, swap, reduction)
    local name = "triplet_margin_loss"
    local reduce = reducer(name, reduction)
    same_shape(name, anchor, positive)
    same_shape(name, anchor, negative)
    local near, far = F.pairwise_distance(anchor, positive, p, eps), F.pairwise_distance(anchor, negative, p, eps)
    if swap then far = sc.minimum(far, F.pairwise_distance(positive, negative, p, eps)) end
    return reduce(hinge(near - far + margin))
  end)

--- [N, C] and [N] of an input that may be a single row.
local function rows(name, x, target, target_rank)
  local alone = x:dim() <= 1
  if x:dim() > 2 or x:dim() == 2 and x:size(2) == 0 then
    fault.raise(name, "argument 1: expected 1 or 2 dimensions with classes, got shape {%s}", shape(x))
  end
  local x2 = alone and x:reshape(1, -1) or x
  local want = target_rank == 1 and tostring(x2:size(1)) or shape(x2)
  local t2 = target
  if target_rank == 1 then
    if target:dim() == 0 then t2 = target:reshape { 1 } end
  elseif target:dim() <= 1 then t2 = target:reshape(1, -1) end
  if shape(t2) ~= want then
    fault.raise(name, "argument 2 (target): the shape {%s} does not fit the input's shape {%s}", shape(target), shape(x))
  end
  return x2, t2, alone
end

loss("multi_margin_loss(x, target, p: int = 1, margin: number = 1.0, weight: tensor?, reduction: str = \"mean\")",
  [[Sum over the classes j other than the target's of max(0, margin - x[target] + x[j])^p, over the number of classes; weight: per class.
Shapes: [N, C] and labels [N] (1 … C), or [C] and [].
Errors: a label out of range; p other than 1 and 2.
Example: sc.nn.functional.multi_margin_loss(sc.zeros(2, 3), sc.tensor{1, 3})]],
  function(x, target, p, margin, weight, reduction)
    local name = "multi_margin_loss"
    local reduce = reducer(name, reduction)
    if p ~= 1 and p ~= 2 then fault.raise(name, "argument 3 (p): expected 1 or 2, got %d", p) end
    local x2, t2, alone = rows(name, x, target, 1)
    local C = x2:size(2)
    if weight and (weight:dim() ~= 1 or weight:numel() ~= C) then
      fault.raise(name, "argument 5 (weight): expected shape {%d}, got {%s}", C, shape(weight))
    end
    local column = t2:unsqueeze(2)
    local z = F.relu(margin - x2:gather(2, column) + x2)
    if p == 2 then z = z * z end
    if weight then z = z * weight:index_select(1, t2):unsqueeze(2) end
    local own = sc.arange(1, C + 1):unsqueeze(1):eq(column)
    local y = sc.where(own, 0.0, z):sum(2) / C
    if alone and target:dim() == 0 then y = y:squeeze(1) end
    return reduce(y)
  end)

loss("multilabel_margin_loss(x, target, reduction: str = \"mean\")",
  [[Several labels a row, target [N, C] listing them until a -1: sum over labels j and other classes i of max(0, 1 - x[j] + x[i]) / C.
Shapes: [N, C] and [N, C], or [C] and [C]. Labels are 1 … C.
Errors: shapes differ; a label out of range.
Example: sc.nn.functional.multilabel_margin_loss(sc.zeros(3), sc.tensor{2, -1, 0})]],
  function(x, target, reduction)
    local name = "multilabel_margin_loss"
    local reduce = reducer(name, reduction)
    local x2, t2, alone = rows(name, x, target, 2)
    local C = x2:size(2)
    local listed = t2:eq(-1):to("int64"):cumsum(2):eq(0)        -- [N, C]: before the -1
    local labels = sc.core.ops.within(sc.where(listed, t2, 1), 1, C, "argument 2 (target)")
    local is_label = sc.zeros(x2.shape, { dtype = "int64" }):scatter_add(2, labels, listed:to("int64")):gt(0)
    local own = x2:gather(2, labels)                             -- [N, C]: the score of each label
    local z = F.relu(1 - own:unsqueeze(3) + x2:unsqueeze(2))     -- [N, label, class]
    local count = listed:unsqueeze(3):logical_and(is_label:logical_not():unsqueeze(2))
    local y = sc.where(count, z, 0.0):sum { dim = { 2, 3 } } / C
    if alone then y = y:squeeze(1) end
    return reduce(y)
  end)

loss("multilabel_soft_margin_loss(x, target, weight: tensor?, reduction: str = \"mean\")",
  [[The mean over classes (the last dimension) of binary cross-entropies with logits; weight: per class.
Errors: shapes differ.
Example: sc.nn.functional.multilabel_soft_margin_loss(sc.zeros(2, 3), sc.ones(2, 3))]],
  function(x, target, weight, reduction)
    local name = "multilabel_soft_margin_loss"
    local reduce = reducer(name, reduction)
    same_shape(name, x, target)
    local y = F.binary_cross_entropy_with_logits(x, target, { weight = weight, reduction = "none" })
    return reduce(y:mean(-1))
  end)
