/* cuDNN's graph API as far as convolutions go, with what TensorFlow puts behind one: sums, products and relu. A part of
 * libcudnn.c. Its numbers are those that bindings for other languages publish. A descriptor remembers what it is told; a
 * plan has one engine, which walks the operations. What it does not know it refuses, at the latest when it runs. */
#pragma once

enum { ENGINE = 2, TO_FORWARD = 10, TO_THE_FILTER = 11, TO_THE_DATA = 12, POINTWISE = 13, OPERATION_GRAPH = 15 }; /* kinds of descriptors */
enum { A_BOOLEAN = 2, A_INT64 = 3, A_FLOAT = 4, A_DOUBLE = 5, A_POINTER = 6, A_DESCRIPTOR = 15, LAST_TYPE = 20 };
enum {
    POINTWISE_MODE = 0, LOWER_CLIP = 3, UPPER_CLIP = 4, LOWER_SLOPE = 5, CONVOLUTION_MODE = 101, DILATIONS = 102, STRIDES = 103, PADDINGS = 105, HEURISTIC_GRAPH = 201,
    HEURISTIC_RESULTS = 202, CONFIG_ENGINE = 300, CONFIG_INFO = 301, CONFIG_KNOBS = 302, PLAN_CONFIG = 401, PLAN_WORKSPACE = 402, FORWARD_ALPHA = 700, DATA_ALPHA = 706,
    FILTER_ALPHA = 712, POINTWISE_WHAT = 750, POINTWISE_X = 751, POINTWISE_B = 752, POINTWISE_Y = 753, POINTWISE_ALPHA1 = 754, POINTWISE_ALPHA2 = 755, GRAPH_OPERATIONS = 801,
    GRAPH_ENGINES = 802, TENSOR_TYPE = 901, TENSOR_DIMENSIONS = 902, TENSOR_STRIDES = 903, TENSOR_VECTOR = 904, TENSOR_ID = 906, TENSOR_VIRTUAL = 907, PACK_IDS = 1000,
    PACK_POINTERS = 1001, ENGINE_GRAPH = 1300, ENGINE_NUMBER = 1301, ENGINE_KNOBS = 1302, ENGINE_NUMERICS = 1303, ENGINE_BEHAVIOR = 1305
};

struct attribute {
    int name, type;
    int64_t count;
    char *data;
    struct attribute *next;
};
typedef struct node {
    int kind, holders;
    struct attribute *first;
} *node_t;

static size_t bytes_of(int type) { return type == A_BOOLEAN ? 1 : type == 0 || type == A_INT64 || type == A_DOUBLE || type == A_POINTER || type == A_DESCRIPTOR ? 8 : 4; }
static void release(node_t);
static void forget(struct attribute *a) {
    for (int64_t i = 0; a->type == A_DESCRIPTOR && i < a->count; i++) release(((node_t *)a->data)[i]);
    free(a->data);
    a->data = NULL;
    a->count = 0;
}
static void release(node_t d) {
    if (!d || __atomic_sub_fetch(&d->holders, 1, __ATOMIC_ACQ_REL)) return;
    for (struct attribute *a = d->first, *next; a; a = next) {
        next = a->next;
        forget(a);
        free(a);
    }
    free(d);
}
static struct attribute *told(node_t d, int name) {
    for (struct attribute *a = d ? d->first : NULL; a; a = a->next)
        if (a->name == name) return a;
    return NULL;
}
static cudnnStatus_t tell(node_t d, int name, int type, int64_t count, const void *values) {
    if (count < 0 || count > 1 << 16 || (count && !values)) return BAD_PARAM;
    struct attribute *a = told(d, name);
    size_t bytes = (size_t)count * bytes_of(type);
    char *data = malloc(bytes + 8);
    if (!data) return ALLOC_FAILED;
    if (bytes) memcpy(data, values, bytes);
    for (int64_t i = 0; type == A_DESCRIPTOR && i < count; i++) /* before what was there is let go */
        if (((node_t *)data)[i]) __atomic_add_fetch(&((node_t *)data)[i]->holders, 1, __ATOMIC_RELAXED);
    if (a) {
        forget(a);
    } else {
        if (!(a = calloc(1, sizeof *a))) abort();
        a->next = d->first;
        d->first = a;
    }
    a->name = name;
    a->type = type;
    a->count = count;
    a->data = data;
    return OK;
}
static int64_t number(node_t d, int name, int64_t otherwise) {
    struct attribute *a = told(d, name);
    int32_t v;
    if (!a || a->count < 1) return otherwise;
    if (bytes_of(a->type) == 8) return *(int64_t *)a->data;
    if (bytes_of(a->type) == 1) return *a->data;
    memcpy(&v, a->data, sizeof v);
    return v;
}
static double real(node_t d, int name, double otherwise) {
    struct attribute *a = told(d, name);
    if (!a || a->count < 1 || (a->type != A_DOUBLE && a->type != A_FLOAT)) return otherwise;
    return a->type == A_DOUBLE ? *(double *)a->data : *(float *)a->data;
}
static node_t other(node_t d, int name) {
    struct attribute *a = told(d, name);
    return a && a->type == A_DESCRIPTOR && a->count > 0 ? *(node_t *)a->data : NULL;
}

static int feasible(node_t graph) {
    struct attribute *all = told(graph, GRAPH_OPERATIONS);
    int known = all && all->count > 0;
    for (int64_t i = 0; known && i < all->count; i++) {
        node_t operation = ((node_t *)all->data)[i], what = other(operation, POINTWISE_WHAT);
        if (operation->kind >= TO_FORWARD && operation->kind <= TO_THE_DATA) continue;
        int64_t mode = number(what, POINTWISE_MODE, -1);
        known = operation->kind == POINTWISE && (mode == 0 || mode == 1 || mode == 100) && real(what, LOWER_SLOPE, 0) == 0;
    }
    return known;
}

cudnnStatus_t cudnnBackendCreateDescriptor(int kind, node_t *d) {
    if (!(*d = calloc(1, sizeof **d))) return ALLOC_FAILED;
    (*d)->kind = kind;
    (*d)->holders = 1;
    return OK;
}
cudnnStatus_t cudnnBackendDestroyDescriptor(node_t d) { release(d); return OK; }
cudnnStatus_t cudnnBackendInitialize(node_t d) { (void)d; return OK; }
cudnnStatus_t cudnnBackendFinalize(node_t d) { return d->kind == OPERATION_GRAPH && !feasible(d) ? NOT_SUPPORTED : OK; }
cudnnStatus_t cudnnBackendSetAttribute(node_t d, int name, int type, int64_t count, const void *values) {
    return type < 0 || type > LAST_TYPE ? NOT_SUPPORTED : tell(d, name, type, count, values);
}
cudnnStatus_t cudnnBackendGetAttribute(node_t d, int name, int type, int64_t wanted, int64_t *got, void *values) {
    int64_t one = 1, zero = 0, unused, count = 1;
    struct attribute *a = told(d, name);
    if (!got) got = &unused;
    switch (name) {
    case CONFIG_INFO: case ENGINE_KNOBS: case ENGINE_NUMERICS: case ENGINE_BEHAVIOR: *got = 0; return OK;
    case CONFIG_KNOBS:
        if (!a) *got = 0;
        if (!a) return OK;
        break;
    case GRAPH_ENGINES: case PLAN_WORKSPACE:
        *got = 1;
        if (wanted > 0 && values) memcpy(values, name == PLAN_WORKSPACE ? &zero : &one, 8);
        return OK;
    case HEURISTIC_RESULTS: { /* into the first descriptor that the caller made */
        node_t graph = other(d, HEURISTIC_GRAPH), engine;
        *got = count;
        if (wanted < 1 || !values) return OK;
        cudnnStatus_t s = cudnnBackendCreateDescriptor(ENGINE, &engine);
        if (s) return s;
        tell(engine, ENGINE_GRAPH, A_DESCRIPTOR, 1, &graph);
        tell(engine, ENGINE_NUMBER, A_INT64, 1, &zero);
        s = tell(*(node_t *)values, CONFIG_ENGINE, A_DESCRIPTOR, 1, &engine);
        release(engine);
        return s;
    }
    }
    if (!a || a->type != type) {
        *got = 0;
        return NOT_SUPPORTED;
    }
    *got = a->count;
    count = wanted < a->count ? wanted : a->count;
    if (!values) return OK;
    if (type == A_DESCRIPTOR) { /* the caller's own descriptors learn what these know */
        for (int64_t i = 0; i < count; i++)
            for (struct attribute *b = ((node_t *)a->data)[i]->first; b; b = b->next) tell(((node_t *)values)[i], b->name, b->type, b->count, b->data);
    } else if (count > 0) {
        memcpy(values, a->data, (size_t)count * bytes_of(type));
    }
    return OK;
}

/* -- Running it ------------------------------------------------------------------------------- */

static cudnnStatus_t tensor_of(node_t d, struct tensor *t) {
    struct attribute *dim = told(d, TENSOR_DIMENSIONS), *stride = told(d, TENSOR_STRIDES);
    if (!dim || !stride || dim->count != stride->count || dim->count < 2 || dim->count > AXES || dim->type != A_INT64 || stride->type != A_INT64) return NOT_SUPPORTED;
    if (number(d, TENSOR_VECTOR, 1) != 1) return NOT_SUPPORTED;
    *t = (struct tensor){.type = (int)number(d, TENSOR_TYPE, -1), .n = (int)dim->count};
    for (int i = 0; i < t->n; i++) {
        int64_t long_ = ((int64_t *)dim->data)[i], step = ((int64_t *)stride->data)[i];
        if (long_ < 1 || long_ > INT32_MAX || step < 0 || step > INT32_MAX) return NOT_SUPPORTED;
        t->dim[i] = (int)long_;
        t->stride[i] = (int)step;
    }
    return type_of(t) < 0 ? NOT_SUPPORTED : OK;
}

struct between { /* what one operation leaves for another */
    int64_t id;
    void *at;
    struct between *next;
};
/* Where a tensor's values are; NULL where nobody says. */
static void *values_of(node_t d, node_t pack, struct between **all) {
    struct attribute *ids = told(pack, PACK_IDS), *pointers = told(pack, PACK_POINTERS);
    int64_t id = number(d, TENSOR_ID, -1), size = 1;
    struct tensor t;
    if (!ids || ids->type != A_INT64 || !pointers || pointers->type != A_POINTER) return NULL;
    if (!number(d, TENSOR_VIRTUAL, 0)) {
        for (int64_t i = 0; i < ids->count && i < pointers->count; i++)
            if (((int64_t *)ids->data)[i] == id) return ((void **)pointers->data)[i];
        return NULL;
    }
    for (struct between *b = *all; b; b = b->next)
        if (b->id == id) return b->at;
    struct between *b = calloc(1, sizeof *b);
    if (!b || tensor_of(d, &t)) {
        free(b);
        return NULL;
    }
    for (int i = 0; i < t.n; i++) size += (int64_t)(t.dim[i] - 1) * t.stride[i];
    *b = (struct between){id, calloc((size_t)size, 8), *all};
    *all = b;
    return b->at;
}

static cudnnStatus_t pointwise(node_t operation, node_t pack, struct between **all) {
    node_t xd = other(operation, POINTWISE_X), bd = other(operation, POINTWISE_B), yd = other(operation, POINTWISE_Y), what = other(operation, POINTWISE_WHAT);
    struct tensor xt, bt, yt;
    struct walk X, B = {0}, Y;
    int64_t mode = number(what, POINTWISE_MODE, -1), at[AXES];
    double first = real(operation, POINTWISE_ALPHA1, 1), second = real(operation, POINTWISE_ALPHA2, 1), least = real(what, LOWER_CLIP, 0), most = real(what, UPPER_CLIP, INFINITY);
    if (tensor_of(xd, &xt) || tensor_of(yd, &yt) || walk_of(&xt, &X) || walk_of(&yt, &Y) || memcmp(X.dim, Y.dim, sizeof X.dim)) return NOT_SUPPORTED;
    if (mode != 100 && (tensor_of(bd, &bt) || walk_of(&bt, &B))) return NOT_SUPPORTED;
    const void *x = values_of(xd, pack, all), *b = mode != 100 ? values_of(bd, pack, all) : x;
    void *y = values_of(yd, pack, all);
    if (!x || !b || !y) return BAD_PARAM;
    for (int axis = 0; mode != 100 && axis < AXES; axis++) {
        if (B.dim[axis] != 1 && B.dim[axis] != Y.dim[axis]) return NOT_SUPPORTED;
        if (B.dim[axis] == 1) B.stride[axis] = 0; /* one value for all of them */
    }
    double *sums = calloc((size_t)Y.size + 1, sizeof *sums);
    if (!sums) return ALLOC_FAILED;
    for (int64_t i = 0; i < Y.size; i++) {
        double v = first * creal(element(x, place(&X, i, at), X.type)), w = mode == 100 ? 0 : second * creal(element(b, offset_of(&B, at), B.type));
        sums[i] = mode == 0 ? v + w : mode == 1 ? v * w : v < least ? least : v > most ? most : v;
    }
    return keep(&Y, sums, 1, 0, y);
}

/* The attributes of the three ways have the same order: alpha, beta, the convolution, its filter, its input, its output. */
static cudnnStatus_t convolve_node(node_t operation, node_t pack, struct between **all) {
    enum way way = operation->kind == TO_FORWARD ? FORWARD : operation->kind == TO_THE_DATA ? TO_DATA : TO_FILTER;
    int start = way == FORWARD ? FORWARD_ALPHA : way == TO_DATA ? DATA_ALPHA : FILTER_ALPHA;
    node_t told_how = other(operation, start + 2), wd = other(operation, start + 3), xd = other(operation, start + 4), yd = other(operation, start + 5);
    struct attribute *pad = told(told_how, PADDINGS), *stride = told(told_how, STRIDES), *dilation = told(told_how, DILATIONS);
    struct tensor x, w, y;
    struct walk out;
    if (tensor_of(xd, &x) || tensor_of(wd, &w) || tensor_of(yd, &y)) return NOT_SUPPORTED;
    if (!pad || !stride || !dilation || pad->count != stride->count || pad->count != dilation->count || pad->count < 1 || pad->count > 3) return NOT_SUPPORTED;
    if (pad->type != A_INT64 || stride->type != A_INT64 || dilation->type != A_INT64 || x.dim[1] % w.dim[1]) return NOT_SUPPORTED;
    struct convolution c = {.n = (int)pad->count, .mode = (int)number(told_how, CONVOLUTION_MODE, 1), .groups = x.dim[1] / w.dim[1]};
    for (int i = 0; i < c.n; i++) {
        c.pad[i] = (int)((int64_t *)pad->data)[i];
        c.stride[i] = (int)((int64_t *)stride->data)[i];
        c.dilation[i] = (int)((int64_t *)dilation->data)[i];
    }
    void *xs = values_of(xd, pack, all), *ws = values_of(wd, pack, all), *ys = values_of(yd, pack, all);
    if (!xs || !ws || !ys) return BAD_PARAM;
    double *sums;
    cudnnStatus_t s = convolved(way, &x, xs, &w, ws, &c, &y, ys, &sums);
    if (s) return s;
    walk_of(way == FORWARD ? &y : way == TO_DATA ? &x : &w, &out);
    return keep(&out, sums, real(operation, start, 1), real(operation, start + 1, 0), way == FORWARD ? ys : way == TO_DATA ? xs : ws);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t h, node_t plan, node_t pack) {
    (void)h;
    node_t graph = other(other(other(plan, PLAN_CONFIG), CONFIG_ENGINE), ENGINE_GRAPH);
    struct between *all = NULL;
    cudnnStatus_t s = feasible(graph) ? OK : NOT_SUPPORTED;
    struct attribute *operations = s ? NULL : told(graph, GRAPH_OPERATIONS);
    for (int64_t i = 0; !s && i < operations->count; i++) {
        node_t operation = ((node_t *)operations->data)[i];
        s = operation->kind == POINTWISE ? pointwise(operation, pack, &all) : convolve_node(operation, pack, &all);
    }
    for (struct between *b = all, *next; b; b = next) {
        next = b->next;
        free(b->at);
        free(b);
    }
    return s;
}
cudnnStatus_t cudnnGraphVersionCheck(void) { return OK; }
cudnnStatus_t cudnnOpsVersionCheck(void) { return OK; }
cudnnStatus_t cudnnCnnVersionCheck(void) { return OK; }
cudnnStatus_t cudnnAdvVersionCheck(void) { return OK; }
