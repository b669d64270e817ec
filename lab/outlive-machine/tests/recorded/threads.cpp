// Threads, condition variables and containers of C++, for the test of the recorder; see everything.c.

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

extern "C" long outlive_word(const void *) __attribute__((weak));

struct Shape {
    virtual ~Shape() = default;
    virtual long area() const { return side * side; }
    long side = 2;
};
struct Wide : Shape {
    long area() const override { return side * 10; }
};

static std::mutex mutex;
static std::condition_variable ready;
static std::deque<std::string> queue;
static bool closed;
static long eaten[3], total, prepared;
static std::once_flag once;
alignas(8) static std::atomic<unsigned char> small[8];

static void eat(int me) {
    std::call_once(once, [] { prepared = 9; });
    for (;;) {
        std::unique_lock<std::mutex> lock(mutex);
        ready.wait(lock, [] { return closed || !queue.empty(); });
        if (queue.empty())
            return;
        std::string food = queue.front();
        queue.pop_front();
        eaten[me] += (long)food.size();
        total = total * 3 + (long)food.size();
        small[me] += 100;
    }
}

int main() {
    std::vector<std::thread> threads;
    Shape *shapes[2] = {new Shape, new Wide};
    for (int i = 0; i < 3; i++)
        threads.emplace_back(eat, i);
    for (int i = 0; i < 300; i++) {
        std::lock_guard<std::mutex> lock(mutex);
        queue.push_back(std::string(i % 50 + (unsigned)shapes[i & 1]->area(), 'x'));
        if (i % 3)
            ready.notify_one();
        else
            ready.notify_all();
    }
    {
        std::lock_guard<std::mutex> lock(mutex);
        closed = true;
    }
    ready.notify_all();
    for (auto &thread : threads)
        thread.join();
    delete shapes[0];
    delete shapes[1];
    if (!outlive_word)
        return 0;
    for (long &word : eaten)
        std::printf("%ld %lu\n", outlive_word(&word), (unsigned long)word);
    std::printf("%ld %lu\n", outlive_word(&total), (unsigned long)total);
    std::printf("%ld %lu\n", outlive_word(&prepared), (unsigned long)prepared);
    unsigned long all = 0;
    for (int i = 0; i < 8; i++)
        all |= (unsigned long)small[i].load() << 8 * i;
    std::printf("%ld %lu\n", outlive_word(small), all);
}
