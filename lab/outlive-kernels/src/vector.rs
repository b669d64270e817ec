//! Vectors of three numbers.

/// Three numbers: a point or a direction.
pub(super) type Vector = [f64; 3];

/// Returns the sum.
pub(super) fn add(a: Vector, b: Vector) -> Vector {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

/// Returns the vector from `b` to `a`.
pub(super) fn sub(a: Vector, b: Vector) -> Vector {
    [a[0] - b[0], a[1] - b[1], a[2] - b[2]]
}

/// Returns `a` times `by`.
pub(super) fn scale(a: Vector, by: f64) -> Vector {
    [a[0] * by, a[1] * by, a[2] * by]
}

/// Returns the scalar product.
pub(super) fn dot(a: Vector, b: Vector) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// Returns the vector product.
pub(super) fn cross(a: Vector, b: Vector) -> Vector {
    [
        a[1] * b[2] - a[2] * b[1],
        a[2] * b[0] - a[0] * b[2],
        a[0] * b[1] - a[1] * b[0],
    ]
}

/// Returns the same direction with length 1.
pub(super) fn unit(a: Vector) -> Vector {
    scale(a, 1.0 / dot(a, a).sqrt())
}
