/* Every family of ops, one line each; a new family is a file and a line here. No include guard: included where it is expanded. */
SC_FAMILY(pointwise)
SC_FAMILY(reduce)
SC_FAMILY(matmul)
SC_FAMILY(view)
SC_FAMILY(create)
SC_FAMILY(slice)
SC_FAMILY(conv)
SC_FAMILY(optim)
