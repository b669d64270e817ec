//! Loops over many numbers, compiled twice: for any processor, and for those with 256-bit vectors.
//!
//! A vector's lanes add and multiply as single numbers do, and nothing is fused (Rust never contracts `a * b + c`, and
//! fused multiplication is not asked for): so both give the same bytes. That matters where a task is begun on one
//! host and done again on another.

/// Makes a function whose body is compiled for any processor and for those with AVX2, and which takes the latter where
/// there is such a one. The body has no receiver and no generics, and what it calls in its loops is
/// `#[inline(always)]`.
macro_rules! widest {
    ($(#[$meta:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$meta])*
        $vis fn $name($($arg: $type),*) $(-> $ret)? {
            #[inline(always)]
            fn body($($arg: $type),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn with_avx2($($arg: $type),*) $(-> $ret)? {
                    body($($arg),*)
                }
                if std::arch::is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has what the function was compiled for; it is safe otherwise.
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use widest;
