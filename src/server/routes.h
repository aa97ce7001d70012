/* routes.h - the table of endpoints. */
#ifndef ROUTES_H
#define ROUTES_H

#include "server/http.h"

/* Ended by a NULL method. */
extern const struct route routes[];

#endif
