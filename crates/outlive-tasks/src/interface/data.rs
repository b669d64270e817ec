//! Access to named data for callers that are not workers: put, read, remove.

use super::WorkerPool;
use crate::PoolError;
use crate::functions::array::{Array, Element};
use crate::store::jobs::name_key;
use crate::store::names::Data;
use crate::store::staging::StagingSlot;
use outlive::heap::LocalHeap;
use outlive::memory::{Memory, Native};

impl WorkerPool {
    /// Returns the data of `name`, if it exists. The handle is valid until the data is
    /// [removed](Self::remove_data).
    pub fn data(&self, heap: &LocalHeap<'_>, name: &str) -> Option<Data> {
        let pin = heap.pin();
        self.layout.names.read(heap, &pin, &name_key(name))
    }

    /// Returns the array `name`, if it exists and its size is a multiple of the element's. The
    /// handle is valid until the data is [removed](Self::remove_data).
    pub fn array<T: Element>(&self, heap: &LocalHeap<'_>, name: &str) -> Option<Array<T>> {
        Array::of(self.layout.memory, self.data(heap, name)?)
    }

    /// Binds `name` to the data `bytes`, for jobs that are submitted afterwards.
    ///
    /// # Errors
    /// If the name has data, or there is no memory.
    ///
    /// # Crash
    /// The name has the data, or none. The next caller that puts data frees an unfinished block.
    pub fn put(&self, heap: &LocalHeap<'_>, name: &str, bytes: &[u8]) -> Result<(), PoolError> {
        self.put_by(heap, name, bytes.len() as u64, |memory, data| {
            memory.copy_in(data.start(), bytes);
            Ok(())
        })
    }

    /// Binds `name` to an array of `len` elements, after `fill` has written them.
    ///
    /// # Errors
    /// Returns the errors of [`put`](Self::put).
    ///
    /// # Crash
    /// The outcome is that of a crash in [`put`](Self::put).
    pub fn put_array<T: Element>(
        &self,
        heap: &LocalHeap<'_>,
        name: &str,
        len: usize,
        fill: impl FnOnce(Array<T>),
    ) -> Result<Array<T>, PoolError> {
        let bytes = (len * size_of::<T>()) as u64;
        let mut made = None;
        self.put_by(heap, name, bytes, |memory, data| {
            let array = Array::of(memory, data).ok_or(PoolError::Damaged {
                at: data.start(),
                what: "a new block is not a valid array",
            })?;
            fill(array);
            made = Some(array);
            Ok(())
        })?;
        Ok(made.expect("filled"))
    }

    fn put_by(
        &self,
        heap: &LocalHeap<'_>,
        name: &str,
        bytes: u64,
        fill: impl FnOnce(Native, Data) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let hand = self.hand(heap);
        let key = name_key(name);
        let bound = || PoolError::Bound { name: name.into() };
        if self.data(heap, name).is_some() {
            return Err(bound());
        }
        let desk = StagingSlot::take(self.layout, hand)?;
        let seated = desk.seated(hand);
        let put = desk.put(hand, &key, bytes, fill);
        let left = seated.leave();
        let put = put?;
        left?;
        // Tasks may wait for it.
        self.layout.barrier.interrupt(heap.member())?;
        if put { Ok(()) } else { Err(bound()) }
    }

    /// Removes the data of `name`. Returns `false` if there is none. The name is unbound again, and
    /// may be written again. The time grows with the number of jobs and of descriptors.
    ///
    /// Tasks that are reading the data have it until they end. The program must not use other
    /// handles on it ([`Data`], [`Array`]) afterwards: they would access memory of another owner.
    /// Tasks that ask for data which they did not declare to [read](crate::Call::reads) no longer
    /// find it, which is also for the program to prevent.
    ///
    /// ```
    #[doc = include_str!("../example_pool.txt")]
    /// # task! {
    /// #     fn halve(context) {
    /// #         let number: u64 = context.input_of("number")?;
    /// #         context.output_of("half", &(number / 2))
    /// #     }
    /// # }
    /// # with_a_worker(|heap, pool| {
    /// for number in [10u64, 20, 30] {
    ///     pool.put(heap, "number", &number.to_ne_bytes())?;
    ///     let call = halve().reads("number").writes("half");
    ///     let job = pool.submit(heap, &format!("halve {number}"), call)?;
    ///     job.wait(None)?;
    ///     let half = pool.data(heap, "half").map(|half| half.to_vec());
    ///     assert_eq!(half, Some((number / 2).to_ne_bytes().to_vec()));
    ///     assert!(pool.remove_data(heap, "half")?);
    ///     assert!(pool.remove_data(heap, "number")?);
    /// }
    /// assert!(pool.data(heap, "half").is_none());
    /// # Ok(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    /// [`PoolError::DataInUse`], which names the user to wait for, if a job or a task that has not
    /// ended reads or writes the data, or another caller puts or removes it. [`PoolError::NoDesk`]
    /// if too many callers perform such operations.
    ///
    /// # Crash
    /// The name has its data, or none. The next incarnation of the caller repeats the removal. The
    /// next caller that removes a job or data, or puts data, finishes the rest.
    pub fn remove_data(&self, heap: &LocalHeap<'_>, name: &str) -> Result<bool, PoolError> {
        self.layout.remove_data(self.hand(heap), &name_key(name))
    }
}
