/* cuSOLVER: nothing of it computes. Where TensorFlow opens the library, it names what it does not find; to 1.13 it has to
 * have the names (see refused.h). */
#if defined CUDART && CUDART < 10010
#include "refused.h"
#define NOT_SUPPORTED 9 /* CUSOLVER_STATUS_NOT_SUPPORTED */
#define EACH(name) REFUSED(cusolverDn##name, NOT_SUPPORTED) REFUSED(cusolverDn##name##_bufferSize, NOT_SUPPORTED)
#define EACH_TYPE(name) EACH(S##name) EACH(D##name) EACH(C##name) EACH(Z##name)
REFUSED(cusolverDnCreate, NOT_SUPPORTED)
REFUSED(cusolverDnDestroy, NOT_SUPPORTED)
REFUSED(cusolverDnSetStream, NOT_SUPPORTED)
REFUSED(cusolverDnSgetrs, NOT_SUPPORTED)
REFUSED(cusolverDnDgetrs, NOT_SUPPORTED)
REFUSED(cusolverDnCgetrs, NOT_SUPPORTED)
REFUSED(cusolverDnZgetrs, NOT_SUPPORTED)
EACH_TYPE(geqrf)
EACH_TYPE(getrf)
EACH_TYPE(potrf)
EACH_TYPE(gesvd)
EACH(Sorgqr)
EACH(Dorgqr)
EACH(Cungqr)
EACH(Zungqr)
EACH(Sormqr)
EACH(Dormqr)
EACH(Cunmqr)
EACH(Zunmqr)
EACH(Ssyevd)
EACH(Dsyevd)
EACH(Cheevd)
EACH(Zheevd)
#else
typedef int nothing; /* an empty file is no C */
#endif
