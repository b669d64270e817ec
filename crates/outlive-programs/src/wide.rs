//! Loops over many numbers, compiled twice: for any processor, and for those with 256-bit vectors.
//!
//! A vector's lanes add and multiply as single numbers do, and nothing is fused (Rust never
//! contracts `a * b + c`, and fused multiplication is not requested). So both give the same bytes,
//! which matters where a task is begun on one host and re-executed on another.

/// Defines a function and compiles its body both for any processor and for AVX2; a call uses the
/// AVX2 version where the processor supports it. The body has no receiver and no generics, and the
/// functions that its loops call must be `#[inline(always)]`.
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
                    // SAFETY: the processor supports the feature that the function was compiled
                    // for; the function is safe otherwise.
                    return unsafe { with_avx2($($arg),*) };
                }
            }
            body($($arg),*)
        }
    };
}
pub(crate) use widest;
