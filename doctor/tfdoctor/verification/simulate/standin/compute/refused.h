/* Functions that are not here but have to be there: TensorFlow 1.13 is linked against them, and does not start without.
 * Each tells its name and answers that it is not supported. */
#pragma once
#include <stdio.h>
#define REFUSED(name, status)                                                              \
    int name(void) {                                                                       \
        fprintf(stderr, "[software GPU] %s is not here: it answers %d\n", #name, status);  \
        return status;                                                                     \
    }
