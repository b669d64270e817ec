/* Prices European options by the formula of Black and Scholes, with a yield of dividends; the normal distribution is PARSEC's
 * polynomial (Abramowitz and Stegun, 26.2.17). In double precision.
 *
 * blackscholes THREADS REPORT RESULT OPTIONS
 *
 *   OPTIONS  how many (64 bits); of each: spot, strike, rate, yield, volatility, years, and whether it is a put (64 bits)
 *
 * The result has the prices.
 */

#include "common.h"
#include <math.h>

enum { TOGETHER = 4096 };

struct option {
    double spot, strike, rate, yield, volatility, years;
    uint64_t is_put;
};

static struct {
    const struct option *options;
    size_t count;
    double *prices;
    atomic_size_t next;
} all;

/* How probable it is to be below `x`. */
static double below(double x) {
    double density = 0.3989422804014327 * exp(-0.5 * x * x);
    double k = 1.0 / (1.0 + 0.2316419 * fabs(x));
    double sum = 0.319381530 + k * (-0.356563782 + k * (1.781477937 + k * (-1.821255978 + k * 1.330274429)));
    double tail = density * k * sum;
    return x < 0.0 ? tail : 1.0 - tail;
}

static double price_of(const struct option *option) {
    double sign = option->is_put ? -1.0 : 1.0;
    double deviation = option->volatility * sqrt(option->years);
    double drift = option->rate - option->yield + option->volatility * option->volatility * 0.5;
    double d1 = (log(option->spot / option->strike) + drift * option->years) / deviation;
    double d2 = d1 - deviation;
    double share = option->yield == 0.0 ? option->spot : option->spot * exp(-option->yield * option->years);
    double payment = option->strike * exp(-option->rate * option->years);
    return sign * (share * below(sign * d1) - payment * below(sign * d2));
}

static void price(void *shared, unsigned thread) {
    (void)shared, (void)thread;
    for (size_t from, to; claim(&all.next, TOGETHER, all.count, &from, &to);)
        for (size_t at = from; at < to; at++) all.prices[at] = price_of(&all.options[at]);
}

int main(int count, char **arguments) {
    if (count != 5) refuse("blackscholes THREADS REPORT RESULT OPTIONS");
    unsigned threads = threads_of(arguments[1]);
    size_t words;
    const uint64_t *input = read_words(arguments[4], 1, &words);
    all.count = input[0];
    all.options = (const struct option *)(input + 1);
    if (words != 1 + all.count * sizeof(struct option) / 8) refuse("the length of the options does not match their header");
    struct moment began = now();
    all.prices = allocate(all.count * sizeof(double));
    in_threads(threads, price, NULL);
    struct moment ended = now();
    FILE *out = begin_result(arguments[3]);
    put(out, all.prices, all.count * sizeof(double));
    end_result(out, arguments[3]);
    report(arguments[2], began, ended);
    return 0;
}
