//! Shortest paths against every combination there is.

use super::*;
use crate::dispatch::testing::Dice;

/// Every choice of a way a stop and a form a stop, as (cost, time).
fn every_path(stops: &[Stop], scales: &[f64]) -> Vec<(f64, f64)> {
    let mut feeder = vec![None; stops.len()];
    for (at, stop) in stops.iter().enumerate() {
        stop.readers.iter().for_each(|reader| feeder[*reader] = Some(at));
    }
    let forms: Vec<Stored> = [Stored::Bf16]
        .into_iter()
        .chain(scales.iter().flat_map(|scale| [Stored::Both(*scale), Stored::Codes(*scale)]))
        .collect();
    let mut found = Vec::new();
    let mut picks = vec![(0, 0); stops.len()];
    loop {
        let total = || -> Option<(f64, f64)> {
            let (mut cost, mut time) = (0.0, 0.0);
            for (at, stop) in stops.iter().enumerate() {
                let (way, stored) = (stop.ways[picks[at].0], forms[picks[at].1]);
                let above = feeder[at].map_or(Stored::Bf16, |feeder: usize| forms[picks[feeder].1]);
                let fits = match (way.reads, above) {
                    (Stored::Bf16, Stored::Codes(_)) => false,
                    (Stored::Bf16, _) => true,
                    (reads, above) => reads == above,
                };
                let may = match stored {
                    Stored::Bf16 => true,
                    Stored::Both(_) => way.produces,
                    Stored::Codes(_) => way.produces && stop.may_drop_bf16,
                };
                if !fits || !may {
                    return None;
                }
                cost += way.cost;
                time += way.time + if matches!(stored, Stored::Both(_)) { stop.extra_us } else { 0.0 };
            }
            Some((cost, time))
        };
        found.extend(total());
        let mut at = 0;
        loop {
            let Some(stop) = stops.get(at) else { return found };
            picks[at].0 += 1;
            if picks[at].0 < stop.ways.len() {
                break;
            }
            picks[at].0 = 0;
            picks[at].1 += 1;
            if picks[at].1 < forms.len() {
                break;
            }
            picks[at] = (0, 0);
            at += 1;
        }
    }
}

fn random(dice: &mut Dice, budget: bool) -> Vec<Stop> {
    let num = 1 + dice.below(4);
    let mut stops = vec![Stop::default(); num];
    for at in 1..num {
        let feeder = dice.below(at);
        stops[feeder].readers.push(at);
    }
    for stop in &mut stops {
        stop.extra_us = dice.unit();
        stop.may_drop_bf16 = !stop.readers.is_empty() && dice.unit() < 0.4;
        let cost = |dice: &mut Dice| if budget { (4.0 * dice.unit()).floor() } else { 0.0 };
        for number in 0..1 + dice.below(3) {
            let way = PathState {
                reads: Stored::Bf16,
                time: 1.0 + 4.0 * dice.unit(),
                cost: cost(dice),
                produces: dice.unit() < 0.6,
            };
            stop.ways.push(way);
            if number > 0 || dice.unit() < 0.6 {
                let scale = [0.25, 0.5][dice.below(2)];
                for reads in [Stored::Both(scale), Stored::Codes(scale)] {
                    stop.ways.push(PathState { reads, time: way.time - dice.unit(), ..way });
                }
            }
        }
    }
    stops
}

#[test]
fn no_combination_is_faster() {
    let mut dice = Dice::new(41);
    let mut codes = 0;
    for _ in 0..400 {
        let stops = random(&mut dice, false);
        let least = every_path(&stops, &[0.25, 0.5]).into_iter().map(|(_, time)| time).fold(f64::INFINITY, f64::min);
        let found = paths(stops.clone(), 64);
        assert_eq!((found.ends.len(), found.slack_us), (1, 0.0));
        assert!((found.ends[0].time - least).abs() < 1e-9, "{found:?} {least} {stops:?}");
        codes += found.steps(0).iter().filter(|step| step.stored != Stored::Bf16).count();
    }
    assert!(codes > 50, "{codes} say little");
}

#[test]
fn no_combination_within_any_cost_is_faster() {
    let mut dice = Dice::new(43);
    for _ in 0..200 {
        let stops = random(&mut dice, true);
        let all = every_path(&stops, &[0.25, 0.5]);
        let exact = paths(stops.clone(), 1000);
        let rough = paths(stops.clone(), 3);
        assert_eq!(exact.slack_us, 0.0);
        for (cost, time) in all {
            let least = |paths: &Paths| {
                paths.ends.iter().filter(|end| end.cost <= cost).map(|end| end.time).fold(f64::INFINITY, f64::min)
            };
            assert!(least(&exact) <= time + 1e-9);
            assert!(least(&rough) <= time + rough.slack_us + 1e-9, "{rough:?} {cost} {time}");
        }
        for (number, end) in exact.ends.iter().enumerate() {
            assert_eq!(sums(&stops, &exact.steps(number)), (end.cost, end.time));
        }
        assert!(rough.ends.len() <= 3);
    }
}

/// What the steps of a path add up to, to nine digits as the ends have it.
fn sums(stops: &[Stop], steps: &[PathStep]) -> (f64, f64) {
    let mut behind = vec![(0.0, 0.0); stops.len()];
    for at in (0..stops.len()).rev() {
        let (stop, step) = (&stops[at], steps[at]);
        let way = stop.ways[step.way];
        let mut sum = (0.0, if matches!(step.stored, Stored::Both(_)) { stop.extra_us } else { 0.0 });
        for reader in &stop.readers {
            sum = (sum.0 + behind[*reader].0, sum.1 + behind[*reader].1);
        }
        behind[at] = (sum.0 + way.cost, sum.1 + way.time);
    }
    behind[0]
}

/// Two blocks and a reader of both: 10 us each, 3 less on codes, which cost 1 to store beside BF16.
#[test]
fn a_chain_by_hand() {
    let way = |reads, time, produces| PathState { reads, time, cost: 0.0, produces };
    let codes = Stored::Both(0.0625);
    let stop = |readers: &[usize], produces| Stop {
        ways: vec![way(Stored::Bf16, 10.0, produces), way(codes, 7.0, produces)],
        readers: readers.to_vec(),
        extra_us: 1.0,
        may_drop_bf16: false,
    };
    let found = paths(vec![stop(&[1], true), stop(&[2], true), stop(&[], false)], 64);
    assert_eq!(found.ends.len(), 1);
    assert_eq!(found.ends[0].time, 10.0 + 1.0 + 7.0 + 1.0 + 7.0);
    assert_eq!(
        found.steps(0),
        [
            PathStep { way: 0, stored: codes },
            PathStep { way: 1, stored: codes },
            PathStep { way: 1, stored: Stored::Bf16 }
        ]
    );
    // Two readers share one store.
    let tree = vec![stop(&[1, 2], true), stop(&[], false), stop(&[], false)];
    assert_eq!(paths(tree, 64).ends[0].time, 10.0 + 1.0 + 7.0 + 7.0);
}
