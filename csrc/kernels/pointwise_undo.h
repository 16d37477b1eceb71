/* Forgets what the rows of pointwise_table.h become, before the next part of pointwise_stamp.h says it anew: every kind of row has its
** line here. No include guard. */
#undef SC_PW_ROW
#undef DO_FI_VEC
#undef DO_FIB_VEC
#undef DO_F_VEC
#undef DO_I_ONE
#undef DO_IB_ONE
#undef DO_FI_ONE
#undef DO_F_ONE
#undef DO_FI_VEC32
#undef DO_F_VEC32
#undef DO_F_VECTOR
#undef DO_F_VECTOR32
#undef DO_F_WIDE
#undef DO_FI_QUOTIENT
#undef DO_FI_COPIES
#undef DO_FIB
#undef DO_FI
#undef DO_F
#undef DO_I
#undef DO_IB
