/* interrupt.c - notes that the user wants to stop. */
#include "app/interrupt.h"

#include <signal.h>

static volatile sig_atomic_t noted;
static struct sigaction before_int, before_term;

static void note(int signal_number)
{
    (void)signal_number;
    noted = 1;
}

void interrupt_catch(void)
{
    struct sigaction a = { .sa_handler = note, .sa_flags = (int)(SA_RESETHAND | SA_RESTART) };

    noted = 0;
    sigemptyset(&a.sa_mask);
    sigaction(SIGINT, &a, &before_int);
    sigaction(SIGTERM, &a, &before_term);
}

void interrupt_release(void)
{
    sigaction(SIGINT, &before_int, NULL);
    sigaction(SIGTERM, &before_term, NULL);
}

bool interrupted(void)
{
    return noted;
}
