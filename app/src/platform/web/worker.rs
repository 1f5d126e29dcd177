//! A page has no thread that would answer beside its frames.

use std::{convert::Infallible, marker::PhantomData};

use crate::executor::Wake;

/// Never there: whoever asks for one does the work in the frame.
pub(crate) struct ViewWorker<Q, A>(Infallible, PhantomData<(Q, A)>);

impl<Q, A> ViewWorker<Q, A> {
    pub fn start(_: &str, _: Wake, _: fn(Q, &A) -> A) -> Option<Self> {
        None
    }

    pub fn ask(&self, _: Q) {
        match self.0 {}
    }

    pub fn retire(&self, _: A) {
        match self.0 {}
    }

    pub fn take(&self) -> Option<Result<A, String>> {
        match self.0 {}
    }
}
