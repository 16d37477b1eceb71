--- nn: modules. `sc.nn.functional` holds the stateless ops.
local sc = require "sconce"

local nn = { functional = sc.functional }

return nn
