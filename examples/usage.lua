--- For the examples: `--help`, and options that an example does not have, are answered with the comment at its top.
---@param known? table<string, boolean>  # the options it has
return function(known)
  local given = arg[1]
  if not given or given:sub(1, 1) ~= "-" or (known and known[given]) then return end
  for line in io.lines(arg[0]) do
    local text = line:match("^%-%-%-%s?(.*)$")
    if not text then break end
    print(text)
  end
  if given == "--help" or given == "-h" then os.exit(true, true) end
  print("")
  error(("there is no option %s"):format(given), 0)
end
