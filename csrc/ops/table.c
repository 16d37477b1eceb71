/* The table: every family's rows, prepared for a context. A row marked SC_OP_INPLACE appears a second time as name_. */
#include "ops.h"

#include <string.h>

typedef struct family { const sc_op *rows; int n; } family;
#define SC_FAMILY(name) extern const sc_op sc__ops_##name[]; extern const int sc__ops_##name##_count;
#include "families.h"
#undef SC_FAMILY

static uint32_t hash_name(const char *s) {
  uint32_t h = 2166136261u;
  while (*s) h = (h ^ (uint8_t)*s++) * 16777619u;
  return h;
}

static void insert(sc_optable *t, sc_opinfo *o) {
  sc_opinfo **head = &t->hash[hash_name(o->name) % SC_COUNT(t->hash)];
  o->next = *head;
  *head = o;
}

const sc_opinfo *sc__op_find(sc_context *ctx, const char *name) {
  for (sc_opinfo *o = ctx->ops->hash[hash_name(name) % SC_COUNT(ctx->ops->hash)]; o; o = o->next)
    if (strcmp(o->name, name) == 0) return o;
  return NULL;
}

sc_status sc__ops_attach(sc_context *ctx) {
  const family families[] = {
#define SC_FAMILY(name) {sc__ops_##name, sc__ops_##name##_count},
#include "families.h"
#undef SC_FAMILY
  };
  int n = 0;
  for (int f = 0; f < SC_COUNT(families); f++)
    for (int i = 0; i < families[f].n; i++) n += families[f].rows[i].flags & SC_OP_INPLACE ? 2 : 1;
  sc_optable *t = sc__alloc_zero(ctx, sizeof *t);
  if (!t) return SC_ENOMEM;
  ctx->ops = t;
  t->n = n;
  t->info = sc__alloc_zero(ctx, (size_t)n * sizeof *t->info);
  if (!t->info) return SC_ENOMEM;
  sc_opinfo *o = t->info;
  for (int f = 0; f < SC_COUNT(families); f++)
    for (int i = 0; i < families[f].n; i++) {
      const sc_op *row = &families[f].rows[i];
      o->def = row;
      o->flags = row->flags;
      o->inplace = (row->flags & SC_OP_INPLACE_ONLY) != 0;
      if (sc__signature_parse(row->signature, o) != SC_OK) return sc__fail(ctx, SC_EINVAL, "bad signature: %s", row->signature);
      insert(t, o++);
      if (!(row->flags & SC_OP_INPLACE)) continue;
      *o = o[-1];
      o->inplace = true;
      strcat(o->name, "_");
      insert(t, o++);
    }
  return SC_OK;
}

void sc__ops_detach(sc_context *ctx, void (*free_formula)(sc_context *, struct sc_formula *)) {
  sc_optable *t = (sc_optable *)ctx->ops;
  if (!t) return;
  for (int i = 0; t->info && i < t->n; i++)
    for (int k = 0; k < SC_MAX_INPUTS; k++)
      if (t->info[i].formula[k]) free_formula(ctx, t->info[i].formula[k]);
  if (t->info) sc__release(ctx, t->info, (size_t)t->n * sizeof *t->info);
  sc__release(ctx, t, sizeof *t);
  ctx->ops = NULL;
}
