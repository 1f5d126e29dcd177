//! Takes the wish to pause, resume or cancel, from any thread; gives work that asks it the moment to go on, or
//! to stop.

use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(feature = "native")]
use std::{
    sync::Condvar,
    time::{Duration, Instant},
};

/// Steers one piece of work: the work asks [`Control::goes_on`] between its steps.
#[derive(Debug, Default)]
pub struct Control {
    state: Mutex<RunState>,
    #[cfg(feature = "native")]
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RunState {
    cancelled: bool,
    #[cfg(feature = "native")]
    paused_since: Option<Instant>,
    /// Pauses that are over.
    #[cfg(feature = "native")]
    paused: Duration,
}

impl Control {
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends the work at its next step, for good; also what is paused.
    pub fn cancel(&self) {
        let mut state = self.state();
        state.cancelled = true;
        #[cfg(feature = "native")]
        self.end_pause(&mut state);
    }

    pub fn is_cancelled(&self) -> bool {
        self.state().cancelled
    }

    fn state(&self) -> MutexGuard<'_, RunState> {
        // No step of a change can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Without threads nobody could resume what waits: there, work cannot be paused.
#[cfg(not(feature = "native"))]
impl Control {
    /// False when the work shall stop.
    pub fn goes_on(&self) -> bool {
        !self.is_cancelled()
    }
}

#[cfg(feature = "native")]
impl Control {
    /// Holds the work at its next step until it is resumed or cancelled.
    pub fn pause(&self) {
        let mut state = self.state();
        if !state.cancelled && state.paused_since.is_none() {
            state.paused_since = Some(Instant::now());
        }
    }

    pub fn resume(&self) {
        self.end_pause(&mut self.state());
    }

    pub fn is_paused(&self) -> bool {
        self.state().paused_since.is_some()
    }

    /// Waits while paused; false when the work shall stop.
    pub fn goes_on(&self) -> bool {
        let state = self.state();
        let waits = |state: &mut RunState| state.paused_since.is_some();
        let state = self.changed.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner);
        !state.cancelled
    }

    /// A clock that starts now and stands still while the work is paused.
    pub fn stopwatch(&self) -> Stopwatch<'_> {
        let now = Instant::now();
        Stopwatch { control: self, start: now, paused_before: self.state().paused_until(now) }
    }

    fn end_pause(&self, state: &mut RunState) {
        if let Some(since) = state.paused_since.take() {
            state.paused += since.elapsed();
            self.changed.notify_all();
        }
    }
}

#[cfg(feature = "native")]
impl RunState {
    fn paused_until(&self, now: Instant) -> Duration {
        self.paused + self.paused_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }
}

/// Time at work, without the pauses.
#[cfg(feature = "native")]
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch<'a> {
    control: &'a Control,
    start: Instant,
    paused_before: Duration,
}

#[cfg(feature = "native")]
impl Stopwatch<'_> {
    pub fn elapsed(&self) -> Duration {
        let now = Instant::now();
        let paused = self.control.state().paused_until(now).saturating_sub(self.paused_before);
        now.saturating_duration_since(self.start).saturating_sub(paused)
    }

    pub fn seconds(&self) -> f64 {
        self.elapsed().as_secs_f64()
    }
}

#[cfg(all(test, feature = "native"))]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::{sync::mpsc::channel, thread::sleep};

    use super::*;

    const MOMENT: Duration = Duration::from_millis(60);

    /// More than a thread waits for its turn on a busy machine.
    const LONG: Duration = Duration::from_secs(60);

    /// Asked once on a thread of its own: what was heard within a while, then `then`, and what was heard at the end.
    fn ask(control: &Control, within: Duration, then: impl FnOnce()) -> (Option<bool>, bool) {
        std::thread::scope(|scope| {
            let (sender, answers) = channel();
            scope.spawn(move || sender.send(control.goes_on()).unwrap());
            let at_once = answers.recv_timeout(within).ok();
            then();
            (at_once, at_once.unwrap_or_else(|| answers.recv_timeout(LONG).unwrap()))
        })
    }

    #[test]
    fn work_waits_until_it_is_resumed_or_cancelled() {
        let control = Control::new();
        assert_eq!(ask(&control, LONG, || {}), (Some(true), true));
        control.pause();
        assert!(control.is_paused());
        assert_eq!(ask(&control, MOMENT, || control.resume()), (None, true));
        assert!(!control.is_paused());
        control.pause();
        assert_eq!(ask(&control, MOMENT, || control.cancel()), (None, false), "cancelling wakes it");
        assert!(control.is_cancelled() && !control.is_paused());
        control.pause();
        assert_eq!(ask(&control, LONG, || {}), (Some(false), false), "what is cancelled does not wait");
        control.resume();
        assert!(!control.goes_on(), "nor does it start again");
    }

    #[test]
    fn pauses_take_no_time() {
        let control = Control::new();
        // Begun before the clock: of no concern to it.
        control.pause();
        sleep(MOMENT);
        let (start, watch) = (Instant::now(), control.stopwatch());
        let before = watch.elapsed();
        sleep(MOMENT);
        assert!(watch.elapsed() <= before + Duration::from_millis(1), "it stands still");
        control.resume();
        sleep(MOMENT);
        control.pause();
        // Asked twice is paused once.
        control.pause();
        sleep(MOMENT);
        control.resume();
        let (worked, passed) = (watch.elapsed(), start.elapsed());
        assert!(worked >= MOMENT && worked + 2 * MOMENT <= passed + Duration::from_millis(1), "{worked:?} {passed:?}");
    }
}
