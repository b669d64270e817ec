//! Matrix Multiply on tasks: the pod holds the left matrix and the packed right one, and each task
//! computes a *block* of the product: some rows of some columns.
//!
//! A task reads only data that is not written any more, and writes only its own block, so a
//! re-executed task computes the same block. For any division into blocks, each element of the
//! product is the sum of its terms in their order.

use super::kernel::{self, LANES, packed_len};
use super::{Matrix, ShapeError, fit};
use core::cell::RefCell;
use outlive::heap::LocalHeap;
use outlive_run::host::HostError;
use outlive_run::on_tasks::{Ended, PoolOf, TaskProgram, damaged, spread, unit};
use outlive_tasks::{Array, Call, Context, PoolError, TaskResult, WorkerPool, task};

// The names of the arrays.
const LEFT: &str = "left";
const PANELS: &str = "panels";
const PRODUCT: &str = "product";
const SIZES: &str = "sizes";

/// The default number of terms that a task adds up: some 10 ms.
const TERMS: usize = 32 << 20;
/// The maximum number of product elements in a block of the default size.
const ELEMENTS: usize = 1 << 20;

/// The program of tasks that multiplies two matrices.
#[derive(Clone, Copy, Debug)]
pub struct Multiplication<'m> {
    a: &'m Matrix,
    b: &'m Matrix,
    block: (usize, usize),
}

impl<'m> Multiplication<'m> {
    /// Creates the multiplication of `a` with `b`.
    ///
    /// # Errors
    /// If their sizes do not match.
    pub fn new(a: &'m Matrix, b: &'m Matrix) -> Result<Self, ShapeError> {
        fit(a, b)?;
        let block = block(a.rows, a.columns, b.columns);
        Ok(Self { a, b, block })
    }

    /// Sets the rows and columns of a block, where given. Columns are rounded up to whole panels.
    #[must_use]
    pub fn in_blocks_of(self, rows: Option<usize>, columns: Option<usize>) -> Self {
        let (chosen_rows, chosen_columns) = self.block;
        let rows = rows.unwrap_or(chosen_rows).clamp(1, self.a.rows);
        let columns = columns.unwrap_or(chosen_columns);
        let columns = columns.clamp(1, self.b.columns).next_multiple_of(LANES);
        Self {
            block: (rows, columns),
            ..self
        }
    }

    /// Returns the maximum numbers of rows and columns of a block.
    pub fn block(&self) -> (usize, usize) {
        self.block
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            rows: self.a.rows,
            depth: self.a.columns,
            columns: self.b.columns,
            block: self.block,
        }
    }
}

/// Returns the rows and columns of a block that takes a task some milliseconds. Rows are whole
/// groups of the kernel where possible.
fn block(rows: usize, depth: usize, columns: usize) -> (usize, usize) {
    let few = (TERMS / LANES / depth).clamp(1, kernel::GROUP.min(rows));
    let wide = (TERMS / few / depth).min(ELEMENTS / few) / LANES * LANES;
    let wide = wide.clamp(LANES, columns.next_multiple_of(LANES));
    let many = (TERMS / wide / depth).min(ELEMENTS / wide) / kernel::GROUP * kernel::GROUP;
    (many.min(rows).max(few), wide)
}

/// The sizes, as tasks know them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    rows: usize,
    depth: usize,
    columns: usize,
    block: (usize, usize),
}

impl Sizes {
    fn to_words(self) -> [u64; 5] {
        let (rows, columns) = self.block;
        [self.rows, self.depth, self.columns, rows, columns].map(|size| size as u64)
    }

    fn of(array: Array<u64>) -> Option<Self> {
        let mut words = [0; 5];
        if array.len() != words.len() {
            return None;
        }
        array.read(0, &mut words);
        let [rows, depth, columns, block_rows, block_columns] = words.map(|size| size as usize);
        (!words.contains(&0)).then_some(Self {
            rows,
            depth,
            columns,
            block: (block_rows, block_columns),
        })
    }

    /// Returns the number of blocks in a row of blocks.
    fn across(self) -> u64 {
        self.columns.div_ceil(self.block.1) as u64
    }

    fn blocks(self) -> u64 {
        self.rows.div_ceil(self.block.0) as u64 * self.across()
    }
}

task! {
    /// Computes blocks `first..last`, or spawns tasks that do.
    pub fn blocks(context, first: u64, last: u64) {
        if last - first > 1 {
            return spread(context, first..last, 1, |part| blocks(part.start, part.end));
        }
        unit(context, first, || multiply(context, first))
    }
}

thread_local! {
    /// A buffer for a block: a new one for each task would cost as much as the copying.
    static BLOCK: RefCell<Vec<f64>> = const { RefCell::new(Vec::new()) };
}

/// Computes block `number`; blocks are numbered row by row.
fn multiply(context: &Context<'_>, number: u64) -> TaskResult {
    let sizes = Sizes::of(context.array(SIZES)?);
    let sizes = sizes.ok_or_else(|| damaged("the matrices have no sizes"))?;
    let Sizes {
        rows,
        depth,
        columns,
        block: (block_rows, block_columns),
    } = sizes;
    let (left, panels) = (context.array::<f64>(LEFT)?, context.array::<f64>(PANELS)?);
    let product = context.array::<f64>(PRODUCT)?;
    let (down, across) = (number / sizes.across(), number % sizes.across());
    let from = (down as usize * block_rows, across as usize * block_columns);
    let to = (
        rows.min(from.0 + block_rows),
        columns.min(from.1 + block_columns),
    );
    // SAFETY: both were put into the pod before the job was submitted, and no task writes to them.
    // The names exist as long as the pool.
    let (left, panels) = unsafe { (left.as_slice(), panels.as_slice()) };
    let left = left.get(from.0 * depth..to.0 * depth);
    let panels = panels.get(from.1 * depth..to.1.next_multiple_of(LANES) * depth);
    let (Some(left), Some(panels), true) = (left, panels, product.len() == rows * columns) else {
        return Err(damaged("the array of a matrix has a wrong size"));
    };
    let width = to.1 - from.1;
    BLOCK.with_borrow_mut(|block| {
        // The content that the last task left there is overwritten.
        block.resize((to.0 - from.0) * width, 0.0);
        kernel::rows(left, panels, depth, width, block);
        for (row, elements) in (from.0..).zip(block.chunks_exact(width)) {
            product.write(row * columns + from.1, elements);
        }
    });
    Ok(())
}

impl TaskProgram for Multiplication<'_> {
    type Result = Matrix;

    const POOL: PoolOf = PoolOf {
        number: 20,
        name: "matmul",
    };

    fn phase(&self) -> &'static str {
        "multiplying"
    }

    fn units(&self) -> u64 {
        self.sizes().blocks()
    }

    fn data_bytes(&self) -> Vec<u64> {
        let (a, b) = (self.a, self.b);
        let numbers = [
            a.elements.len(),
            packed_len(b.rows, b.columns),
            a.rows * b.columns,
            self.sizes().to_words().len(),
        ];
        // And the tasks.
        let tasks = 256 * self.units();
        let arrays = numbers.into_iter().map(|count| count as u64 * 8);
        arrays.chain([tasks]).collect()
    }

    fn put(&self, pool: &WorkerPool, heap: &LocalHeap<'_>) -> Result<(), PoolError> {
        let (a, b) = (self.a, self.b);
        let len = packed_len(b.rows, b.columns);
        pool.put_array(heap, PANELS, len, |panels| {
            let mut panel = vec![0.0; b.rows * LANES];
            for number in 0..b.columns.div_ceil(LANES) {
                kernel::pack(&b.elements, b.rows, b.columns, number, &mut panel);
                panels.write(number * panel.len(), &panel);
            }
        })?;
        let left = &a.elements;
        pool.put_array(heap, LEFT, left.len(), |array| array.write(0, left))?;
        // Every element is written by a task.
        pool.put_array::<f64>(heap, PRODUCT, a.rows * b.columns, |_| ())?;
        let sizes = self.sizes().to_words();
        pool.put_array(heap, SIZES, sizes.len(), |array| array.write(0, &sizes))?;
        Ok(())
    }

    fn begin(&self) -> Call {
        blocks(0, self.units())
    }

    fn result(
        &self,
        pool: &WorkerPool,
        heap: &LocalHeap<'_>,
        _: &Ended,
    ) -> Result<Matrix, HostError> {
        let product = pool.array::<f64>(heap, PRODUCT);
        let elements = product.ok_or(HostError::NoRun)?.to_vec();
        Ok(Matrix::new(self.a.rows, self.b.columns, elements))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_some_milliseconds_of_any_matrices() {
        for (rows, depth, columns) in [
            (1, 1, 1),
            (1000, 1000, 1000),
            (3, 1_000_000, 5),
            (1_000_000, 2, 2),
            (5, 2, 1_000_000),
            (100_000, 1, 100_000),
            (96, 400_000, 96),
            (20_000, 20_000, 20_000),
        ] {
            let (tall, wide) = block(rows, depth, columns);
            assert!((1..=rows).contains(&tall) && wide.is_multiple_of(LANES));
            assert!(wide < columns + LANES);
            let terms = tall * wide * depth;
            assert!(
                terms <= TERMS || (tall, wide) == (1, LANES),
                "{tall} {wide}"
            );
            assert!(tall * wide <= ELEMENTS);
            // Not many small ones.
            let all = rows * columns.next_multiple_of(LANES) * depth;
            let is_large = terms * 4 >= TERMS || tall * wide * 4 >= ELEMENTS;
            assert!(
                is_large || terms >= all.min(terms * 2),
                "{tall} {wide} of {rows} {depth} {columns}"
            );
        }
    }
}
