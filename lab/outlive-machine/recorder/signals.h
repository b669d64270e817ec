/* Handlers of signals. What one does is recorded in between what its thread does, which has been announced and may not have been done:
 * that is put aside meanwhile. One that comes while the recorder is at work waits until it has done: so it may end the program, too. */

typedef void handler(int, siginfo_t *, void *);

/* From `store_at` up to `held`: what has been announced. */
#define ANNOUNCED_SIZE (offsetof(struct thread, held) - offsetof(struct thread, store_at))

/* The program's own, of which each is called by `handles`. One that takes only the number finds that where it expects it. */
static handler *handlers[NSIG];
static bool plain[NSIG];

/* Whether the signal is about what the thread is just doing, so that it cannot wait. */
HIDDEN bool is_a_fault(int number, const siginfo_t *about) {
    return about->si_code > 0 && (number == SIGSEGV || number == SIGBUS || number == SIGFPE || number == SIGILL ||
                                  number == SIGTRAP || number == SIGSYS);
}

/* Sends the signal to the thread once more, blocked until `release`: the system then calls the handler as it is to be called. */
HIDDEN bool puts_off(struct thread *t, int number, siginfo_t *about, ucontext_t *context) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    pthread_sigmask(SIG_BLOCK, &one, NULL);
    if (syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), number, about) != 0)
        return false;
    sigaddset(&context->uc_sigmask, number);
    sigaddset(&t->signals, number);
    t->has_signals = true;
    return true;
}

/* This one came right before `release` has looked: those that were put off come when it returns, whose mask would block them for good. */
HIDDEN void let_come(struct thread *t, ucontext_t *context) {
    for (int number = 1; number < NSIG; number++)
        if (sigismember(&t->signals, number))
            sigdelset(&context->uc_sigmask, number);
    sigemptyset(&t->signals);
    t->has_signals = false;
}

HIDDEN void handles(int number, siginfo_t *about, void *context) {
    handler *own = __atomic_load_n(&handlers[number], __ATOMIC_RELAXED);
    struct thread *here = self, *t;
    int before = errno;
    bool busy = here && (__atomic_load_n(&here->busy, __ATOMIC_RELAXED) == 1 || here->in_heap);
    if (busy && !is_a_fault(number, about) && puts_off(here, number, about, context)) {
        errno = before;
        return;
    }
    bool waiting = here && !busy && here->has_signals;
    sigset_t signals;
    if (waiting) {
        signals = here->signals;
        let_come(here, context);
    }
    if (busy)
        here->faulting = true;
    t = grab();
    unsigned char announced[ANNOUNCED_SIZE];
    if (t) {
        __real_memcpy(announced, &t->store_at, sizeof announced);
        __real_memset(&t->store_at, 0, sizeof announced);
        release(t);
    }
    errno = before;
    own(number, about, context);
    before = errno;
    if (t && (t = grab())) {
        settle(t);
        __real_memcpy(&t->store_at, announced, sizeof announced);
        release(t);
    }
    if (busy)
        here->faulting = false;
    /* Another handler may have come right before this one's first instruction: when that one returns, these signals are blocked, and
     * the `release` in which both came has to let them come once more. */
    if (waiting) {
        sigorset(&here->signals, &here->signals, &signals);
        here->has_signals = true;
    }
    errno = before;
}

int __sigaction(int, const struct sigaction *, struct sigaction *); /* the library's own, under its other name */

__attribute__((weak)) int sigaction(int number, const struct sigaction *new, struct sigaction *old) {
    /* What happens but once cannot be sent once more. */
    bool ours = R.objects && number > 0 && number < NSIG && new && new->sa_handler != SIG_DFL && new->sa_handler != SIG_IGN &&
                !(new->sa_flags & SA_RESETHAND);
    bool known = number > 0 && number < NSIG;
    handler *before = known ? handlers[number] : NULL;
    bool before_plain = known && plain[number];
    struct sigaction action;
    if (ours) {
        action = *new;
        plain[number] = !(new->sa_flags & SA_SIGINFO);
        __atomic_store_n(&handlers[number], new->sa_sigaction, __ATOMIC_RELAXED);
        action.sa_sigaction = handles;
        action.sa_flags |= SA_SIGINFO;
    }
    int error = __sigaction(number, ours ? &action : new, old);
    if (!error && old && old->sa_sigaction == handles) {
        old->sa_sigaction = before;
        if (before_plain)
            old->sa_flags &= ~SA_SIGINFO;
    }
    return error;
}

__attribute__((weak)) void (*signal(int number, void (*own)(int)))(int) {
    struct sigaction new = {.sa_handler = own, .sa_flags = SA_RESTART}, old;
    if (own == SIG_ERR) {
        errno = EINVAL;
        return SIG_ERR;
    }
    return sigaction(number, &new, &old) ? SIG_ERR : old.sa_handler;
}
