/* interrupt.c - notes that the user wants to stop. */
#include "app/interrupt.h"

#include <signal.h>

static volatile sig_atomic_t noted;

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
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

void interrupt_release(void)
{
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

bool interrupted(void)
{
    return noted;
}
