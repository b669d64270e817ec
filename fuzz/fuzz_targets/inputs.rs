//! Any bytes are points, a matrix or a picture, or are refused; also behind the first bytes of each
//! format.

#![no_main]

use libfuzzer_sys::fuzz_target;
use outlive_programs::histogram::{Format, Layout, count, verify};
use outlive_programs::kmeans::Points;
use outlive_programs::matmul::Matrix;

const STARTS: [&[u8]; 5] = [
    b"",
    b"\x93NUMPY\x01\x00\x46\x00{'descr': '<i8', 'fortran_order': True, 'shape': (2, 2), }",
    b"%%MatrixMarket matrix array real general\n",
    b"BM\0\0\0\0\0\0\0\0\x36\x04\0\0\x28\0\0\0\x02\0\0\0\x02\0\0\0\x01\0\x08\0",
    b"P6 ",
];

fuzz_target!(|bytes: &[u8]| {
    for start in STARTS {
        let file = [start, bytes].concat();
        if let Ok(points) = Points::parse(&file) {
            assert_eq!(points.coordinates().len(), points.len() * points.dimensions());
        }
        if let Ok(matrix) = Matrix::parse(&file) {
            assert_eq!(matrix.elements().len(), matrix.rows() * matrix.columns());
        }
        if let Ok(layout) = Layout::find(&file, Format::Any) {
            let bins = count(&file, &layout);
            assert_eq!(verify::verify(&file, &layout, &bins), Ok(()));
        }
    }
});
