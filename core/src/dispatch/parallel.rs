//! Takes a length, or things, and a function; gives its answers in order: on every core where there are threads, on
//! this one where there are none. The answers do not depend on how many there are.
//!
//! A page has one core, and nothing of the rest is in it: each of these is a dozen times in the program.

use std::ops::Range;
#[cfg(feature = "web")]
use std::sync::atomic::{AtomicUsize, Ordering};

/// Items that are worth a thread of their own, when one costs some tens of microseconds.
const LEAST: usize = 256;

/// `work` over consecutive ranges of `0..len`; their answers one after the other.
pub fn map_ranges<R: Send>(len: usize, work: impl Fn(Range<usize>) -> Vec<R> + Sync) -> Vec<R> {
    let parts = parts(len);
    if parts <= 1 { work(0..len) } else { on_threads(ranges(len, parts), work) }
}

/// The same of a few long pieces of work.
pub fn map_few<R: Send>(len: usize, work: impl Fn(Range<usize>) -> Vec<R> + Sync) -> Vec<R> {
    let parts = cores().min(len / 2);
    if parts <= 1 { work(0..len) } else { on_threads(ranges(len, parts), work) }
}

/// `work` at every place of `0..len`.
pub fn map<R: Send>(len: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    map_ranges(len, |range| range.map(&work).collect())
}

/// `work` at every place of `0..len`, each a long piece of unlike length: a thread that is done takes the next.
#[cfg(feature = "web")]
pub fn map_long<R: Send>(len: usize, work: impl Fn(usize) -> R + Sync) -> Vec<R> {
    if cores() <= 1 {
        return (0..len).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let taken = |()| {
        let places = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|at| *at < len);
        places.map(|at| (at, work(at))).collect()
    };
    let mut all = on_threads(vec![(); cores().min(len)], taken);
    all.sort_unstable_by_key(|(at, _)| *at);
    all.into_iter().map(|(_, answer)| answer).collect()
}

/// `work` of each of `items`, which are given away.
#[cfg(feature = "web")]
pub fn map_owned<T: Send, R: Send>(items: Vec<T>, work: impl Fn(T) -> R + Sync) -> Vec<R> {
    map_pieces(items.len(), items, |_, items| items.into_iter().map(&work).collect())
}

/// `work` over consecutive ranges of `0..len`, each with its piece of `items`, which are given away: as many, or none.
pub fn map_pieces<T: Send, R: Send>(
    len: usize,
    mut items: Vec<T>,
    work: impl Fn(Range<usize>, Vec<T>) -> Vec<R> + Sync,
) -> Vec<R> {
    let parts = parts(len);
    if parts <= 1 {
        return work(0..len, items);
    }
    let cuts = ranges(len, parts).into_iter().rev();
    let mut pieces: Vec<_> = cuts.map(|range| (range.clone(), items.split_off(range.start.min(items.len())))).collect();
    pieces.reverse();
    on_threads(pieces, |(range, items)| work(range, items))
}

/// Both, at once where there are threads.
#[cfg(feature = "native")]
pub fn join<A: Send, B>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B) -> (A, B) {
    std::thread::scope(|scope| {
        let a = scope.spawn(a);
        let b = b();
        (a.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)), b)
    })
}

#[cfg(not(feature = "native"))]
pub fn join<A: Send, B>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B) -> (A, B) {
    (a(), b())
}

/// Asking costs more than a small trace takes.
fn parts(len: usize) -> usize {
    if len < 2 * LEAST { 1 } else { cores().min(len / LEAST) }
}

#[cfg(feature = "native")]
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

#[cfg(not(feature = "native"))]
fn cores() -> usize {
    1
}

/// `0..len` in that many pieces.
fn ranges(len: usize, parts: usize) -> Vec<Range<usize>> {
    (0..parts).map(|part| part * len / parts..(part + 1) * len / parts).collect()
}

/// `work` of each piece, those after the first on threads of their own.
#[cfg(feature = "native")]
fn on_threads<P: Send, R: Send>(pieces: Vec<P>, work: impl Fn(P) -> Vec<R> + Sync) -> Vec<R> {
    let work = &work;
    let mut pieces = pieces.into_iter();
    let Some(first) = pieces.next() else { return Vec::new() };
    std::thread::scope(|scope| {
        let others: Vec<_> = pieces.map(|piece| scope.spawn(move || work(piece))).collect();
        let mut all = work(first);
        for other in others {
            // A panic there is one here: nothing of ours may be half done.
            all.append(&mut other.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause)));
        }
        all
    })
}

#[cfg(not(feature = "native"))]
fn on_threads<P: Send, R: Send>(pieces: Vec<P>, work: impl Fn(P) -> Vec<R> + Sync) -> Vec<R> {
    pieces.into_iter().flat_map(work).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_order_however_many_there_are() {
        for len in [0, 1, LEAST, 2 * LEAST, 10 * LEAST + 7] {
            assert_eq!(map(len, |at| 3 * at), (0..len).map(|at| 3 * at).collect::<Vec<_>>());
            assert_eq!(map_ranges(len, |range| range.collect()), (0..len).collect::<Vec<_>>());
            assert_eq!(map_owned((0..len).collect(), |at| 3 * at), map(len, |at| 3 * at));
            let without = map_pieces(len, Vec::<()>::new(), |range, items| range.map(|at| (at, items.len())).collect());
            assert_eq!(without, map(len, |at| (at, 0)));
        }
    }

    #[cfg(feature = "native")]
    #[test]
    fn every_number_of_threads_gives_the_same() {
        let all: Vec<usize> = (0..1000).collect();
        for parts in 1..9 {
            assert_eq!(on_threads(ranges(1000, parts), |range| range.collect()), all);
        }
        assert_eq!(map_long(1000, |at| at), all);
        assert_eq!(join(|| 1, || 2), (1, 2));
    }
}
