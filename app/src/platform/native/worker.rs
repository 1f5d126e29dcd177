//! A thread that derives views of large traces: the latest question is answered, those it overtook are not.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::executor::Wake;

/// What passes between the frame and the thread: questions `Q`, answers `A`.
struct ViewWorkerSlot<Q, A> {
    asked: Option<Q>,
    answer: Option<Result<A, String>>,
    /// Answers that nobody looks at any more.
    old: Vec<A>,
    closed: bool,
}

struct ViewWorkerShared<Q, A> {
    desk: Mutex<ViewWorkerSlot<Q, A>>,
    news: Condvar,
}

pub(crate) struct ViewWorker<Q, A>(Arc<ViewWorkerShared<Q, A>>);

impl<Q, A> ViewWorkerShared<Q, A> {
    fn desk(&self) -> MutexGuard<'_, ViewWorkerSlot<Q, A>> {
        // Every change of the desk is one assignment.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self) -> Option<Q> {
        let mut desk = self.desk();
        loop {
            if desk.closed {
                return None;
            }
            if let Some(asked) = desk.asked.take() {
                return Some(asked);
            }
            if !desk.old.is_empty() {
                let old = std::mem::take(&mut desk.old);
                drop(desk);
                drop(old);
                desk = self.desk();
                continue;
            }
            desk = self.news.wait(desk).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<Q: Send + 'static, A: Clone + Default + Send + 'static> ViewWorker<Q, A> {
    /// `answer`: takes a question and the last answer.
    pub fn start(name: &str, wake: Wake, answer: fn(Q, &A) -> A) -> Option<Self> {
        let desk = Mutex::new(ViewWorkerSlot { asked: None, answer: None, old: Vec::new(), closed: false });
        let shared = Arc::new(ViewWorkerShared { desk, news: Condvar::new() });
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name(name.to_owned());
        if let Err(error) = thread.spawn(move || work(&of_thread, &wake, answer)) {
            shared.desk().answer = Some(Err(format!("no thread could be started: {error}")));
        }
        Some(Self(shared))
    }

    pub fn ask(&self, question: Q) {
        self.0.desk().asked = Some(question);
        self.0.news.notify_one();
    }

    pub fn take(&self) -> Option<Result<A, String>> {
        self.0.desk().answer.take()
    }

    /// Returns the memory of an answer on the thread: what is large takes longer than a frame has.
    pub fn retire(&self, old: A) {
        self.0.desk().old.push(old);
        self.0.news.notify_one();
    }
}

impl<Q, A> Drop for ViewWorker<Q, A> {
    fn drop(&mut self) {
        self.0.desk().closed = true;
        self.0.news.notify_one();
    }
}

fn work<Q, A: Clone + Default>(shared: &ViewWorkerShared<Q, A>, wake: &Wake, answer: fn(Q, &A) -> A) {
    let mut last = A::default();
    while let Some(question) = shared.next() {
        let answer = catch_unwind(AssertUnwindSafe(|| answer(question, &last)));
        let answer = answer.map_err(|cause| crate::executor::panic_text(&*cause));
        if let Ok(answer) = &answer {
            last = answer.clone();
        }
        // The frame must not wait for the memory of an old grid to be returned.
        drop(shared.desk().answer.replace(answer));
        wake();
    }
}
