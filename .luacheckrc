std = "lua54"
max_line_length = 160
files["spec"] = { std = "+busted" }
exclude_files = { "build/**", "spec/reference/**" } -- stored results are written by a program
