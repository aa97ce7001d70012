/* interrupt.h - long work that can be ended with Ctrl-C without leaving rubbish. */
#ifndef INTERRUPT_H
#define INTERRUPT_H

#include <stdbool.h>

/* From now on the first SIGINT or SIGTERM is only noted; a second one ends the program. */
void interrupt_catch(void);
/* Back to what these signals did before. */
void interrupt_release(void);
bool interrupted(void);

/* What the program returns then. */
enum { INTERRUPT_EXIT = 130 };

#endif
