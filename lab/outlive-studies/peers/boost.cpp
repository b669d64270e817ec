// Boost.Interprocess's managed_shared_memory, with names that Rust can call.

#include <boost/interprocess/managed_shared_memory.hpp>
#include <boost/interprocess/shared_memory_object.hpp>
#include <cstddef>
#include <new>

using Segment = boost::interprocess::managed_shared_memory;

extern "C" void *outlive_boost_open(const char *name, std::size_t size) noexcept {
    try {
        return new Segment(boost::interprocess::open_or_create, name, size);
    } catch (...) {
        return nullptr;
    }
}

extern "C" void *outlive_boost_allocate(void *segment, std::size_t bytes) noexcept {
    return static_cast<Segment *>(segment)->allocate(bytes, std::nothrow);
}

extern "C" void outlive_boost_free(void *segment, void *block) noexcept {
    static_cast<Segment *>(segment)->deallocate(block);
}

extern "C" void outlive_boost_close(void *segment) noexcept {
    delete static_cast<Segment *>(segment);
}

extern "C" void outlive_boost_remove(const char *name) noexcept {
    boost::interprocess::shared_memory_object::remove(name);
}
