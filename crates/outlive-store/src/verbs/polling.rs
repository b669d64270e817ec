//! Minimal executors, which poll futures until they are ready.

use core::future::Future;
use core::pin::{Pin, pin};
use core::task::{Context, Poll, Waker};

/// Polls `future` until it is ready.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        core::hint::spin_loop();
    }
}

/// Returns a future that polls all `futures` in turn until each is ready, and returns their outputs
/// in the same order.
pub async fn join_all<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut futures: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    core::future::poll_fn(move |context| {
        let mut is_done = true;
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    Poll::Ready(ready) => *output = Some(ready),
                    Poll::Pending => is_done = false,
                }
            }
        }
        match is_done {
            true => Poll::Ready(outputs.drain(..).flatten().collect()),
            false => Poll::Pending,
        }
    })
    .await
}
