//! One recorded step that views show together: which one, and whether it moves on by itself. Takes the steps of the
//! selected site's series; sites are recorded at the same steps, so that it stays when another is selected.

use loka_core::{
    model::SiteId,
    session::{Looked, SeriesState, Session},
    views::drift::Bucket,
};

use super::HeatmapState;

/// Seconds that all steps take to play, and the least and the most that one of them does.
const PLAYED_IN: f64 = 8.0;
const EACH: (f64, f64) = (0.05, 0.4);

/// Not saved, not undone.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepCursor {
    step: Option<i64>,
    /// When it moves on; it does not at all without one.
    moves_at: Option<f64>,
    /// The heatmap's column as it was set last.
    column: Option<usize>,
}

impl StepCursor {
    /// `None`: the whole recording is looked at.
    pub fn step(&self) -> Option<i64> {
        self.step
    }

    pub fn is_on(&self) -> bool {
        self.step.is_some()
    }

    pub fn is_playing(&self) -> bool {
        self.moves_at.is_some()
    }

    pub fn set(&mut self, step: i64) {
        (self.step, self.moves_at) = (Some(step), None);
    }

    pub fn leave(&mut self) {
        (self.step, self.moves_at) = (None, None);
    }

    /// To the step after or before: from nowhere to the first or the last.
    pub fn go(&mut self, steps: &[Bucket], forward: bool) {
        let (first, last) = (steps.first(), steps.last());
        let to = match (self.step, forward) {
            (None, true) => first,
            (None, false) => last,
            (Some(at), true) => steps.iter().find(|point| point.last_step > at).or(last),
            (Some(at), false) => steps.iter().rev().find(|point| point.last_step < at).or(first),
        };
        if let Some(to) = to {
            self.set(to.last_step);
        }
    }

    pub fn is_first(&self, steps: &[Bucket]) -> bool {
        self.step.zip(steps.first()).is_some_and(|(at, first)| at <= first.last_step)
    }

    pub fn is_last(&self, steps: &[Bucket]) -> bool {
        self.step.zip(steps.last()).is_some_and(|(at, last)| at >= last.last_step)
    }

    /// From the beginning where it stands at the end.
    pub fn toggle_playing(&mut self, steps: &[Bucket]) {
        if self.moves_at.take().is_some() || steps.is_empty() {
            return;
        }
        if self.step.is_none() || self.is_last(steps) {
            self.step = steps.first().map(|point| point.last_step);
        }
        // The frame that is drawn now counts for the first one.
        self.moves_at = Some(f64::NEG_INFINITY);
    }

    /// Moves on when it is time; gives the seconds until it is again. `None`: it does not play.
    pub fn tick(&mut self, now: f64, steps: &[Bucket]) -> Option<f64> {
        let due = self.moves_at?;
        let each = (PLAYED_IN / steps.len().max(1) as f64).clamp(EACH.0, EACH.1);
        if due == f64::NEG_INFINITY {
            self.moves_at = Some(now + each);
            return Some(each);
        }
        if now < due {
            return Some(due - now);
        }
        let Some(next) = self.step.and_then(|at| steps.iter().find(|point| point.last_step > at)) else {
            self.moves_at = None;
            return None;
        };
        (self.step, self.moves_at) = (Some(next.last_step), Some(now + each));
        Some(each)
    }

    /// Keeps it and the heatmap's column the same while steps are its columns, whichever was moved.
    pub fn follow(&mut self, heatmap: &mut HeatmapState, session: &Session) {
        let SeriesState::Read(table) = &session.series else { return };
        let Some(columns) = heatmap.series.as_deref().and_then(|name| table.get(name)).map(|of| &of.columns) else {
            return;
        };
        if heatmap.step != self.column {
            self.column = heatmap.step;
            if let Some((_, last)) = heatmap.step.and_then(|at| columns.get(at)) {
                self.set(*last);
            }
        }
        if let Some(step) = self.step {
            let at = columns.partition_point(|(_, last)| *last < step).min(columns.len().saturating_sub(1));
            (heatmap.step, self.column) = (Some(at), Some(at));
        }
    }
}

/// The points of a site's longest series, in the order of steps and at least one, or why there are none.
pub fn recorded_steps<'a>(session: &'a Session, site: Option<&SiteId>) -> Result<&'a [Bucket], String> {
    let site = site.ok_or("select a site first")?;
    match session.inspections.of(site) {
        Some(Looked::Found(inspection)) => {
            let longest = inspection.series.iter().map(|series| &series.points[..]).max_by_key(|points| points.len());
            longest.filter(|points| !points.is_empty()).ok_or_else(|| "the trace has no series of this site".to_owned())
        }
        Some(Looked::Failed(why)) => Err(why.clone()),
        _ => Err("its series are not read yet: show Drift or Distribution".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEPS: [Bucket; 4] = [at(0), at(10), at(20), at(30)];

    const fn at(step: i64) -> Bucket {
        Bucket { first_step: step, last_step: step, range: None, num_not_finite: 0 }
    }

    #[test]
    fn it_goes_by_recorded_steps_and_stays_at_the_ends() {
        let mut cursor = StepCursor::default();
        cursor.go(&STEPS, false);
        assert_eq!(cursor.step(), Some(30));
        cursor.go(&STEPS, true);
        assert_eq!(cursor.step(), Some(30));
        cursor.set(14);
        cursor.go(&STEPS, false);
        assert_eq!(cursor.step(), Some(10));
        cursor.leave();
        cursor.go(&STEPS, true);
        assert_eq!(cursor.step(), Some(0));
        cursor.leave();
        cursor.go(&[], true);
        assert!(!cursor.is_on());
    }

    #[test]
    fn it_plays_to_the_end_and_from_the_beginning_again() {
        let mut cursor = StepCursor::default();
        cursor.toggle_playing(&STEPS);
        let mut now = 5.0;
        let mut seen = vec![cursor.step()];
        while let Some(wait) = cursor.tick(now, &STEPS) {
            assert!((EACH.0..=EACH.1).contains(&wait), "{wait}");
            now += wait;
            if seen.last() != Some(&cursor.step()) {
                seen.push(cursor.step());
            }
        }
        assert_eq!(seen, [Some(0), Some(10), Some(20), Some(30)]);
        assert!(!cursor.is_playing());
        cursor.toggle_playing(&STEPS);
        assert_eq!(cursor.step(), Some(0));
        cursor.toggle_playing(&STEPS);
        assert_eq!((cursor.step(), cursor.is_playing()), (Some(0), false), "stopped where it stood");
    }
}
