/* The table: every family's rows, prepared for a context. A row marked SC_OP_INPLACE appears a second time as name_.
** Aliases lead to the very same row. */
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
  for (const sc_opalias *a = ctx->ops->alias_hash[hash_name(name) % SC_COUNT(ctx->ops->alias_hash)]; a; a = a->next)
    if (strcmp(a->name, name) == 0) return a->op;
  return NULL;
}

static const struct { const char *name, *of; } ALIASES[] = {
#define SC_ALIAS(name, of) {name, of},
#include "aliases.h"
#undef SC_ALIAS
};

static void add_alias(sc_optable *t, const char *name, const char *tail, const sc_opinfo *op) {
  if (!op) return;
  sc_opalias *a = &t->alias[t->n_alias++];
  strcpy(a->name, name);
  strcat(a->name, tail);
  a->op = op;
  sc_opalias **head = &t->alias_hash[hash_name(a->name) % SC_COUNT(t->alias_hash)];
  a->next = *head;
  *head = a;
}

static sc_status add_aliases(sc_context *ctx, sc_optable *t) {
  t->alias = sc__alloc_zero(ctx, sizeof *t->alias * 2 * SC_COUNT(ALIASES));
  if (!t->alias) return SC_ENOMEM;
  for (int i = 0; i < SC_COUNT(ALIASES); i++) {
    char inplace[48];
    strcpy(inplace, ALIASES[i].of);
    strcat(inplace, "_");
    add_alias(t, ALIASES[i].name, "", sc__op_find(ctx, ALIASES[i].of));
    add_alias(t, ALIASES[i].name, "_", sc__op_find(ctx, inplace));
  }
  return SC_OK;
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
  return add_aliases(ctx, t);
}

void sc__ops_detach(sc_context *ctx, void (*free_formula)(sc_context *, struct sc_formula *)) {
  sc_optable *t = (sc_optable *)ctx->ops;
  if (!t) return;
  for (int i = 0; t->info && i < t->n; i++)
    for (int k = 0; k < SC_MAX_INPUTS; k++)
      if (t->info[i].formula[k]) free_formula(ctx, t->info[i].formula[k]);
  if (t->alias) sc__release(ctx, t->alias, sizeof *t->alias * 2 * SC_COUNT(ALIASES));
  if (t->info) sc__release(ctx, t->info, (size_t)t->n * sizeof *t->info);
  sc__release(ctx, t, sizeof *t);
  ctx->ops = NULL;
}
