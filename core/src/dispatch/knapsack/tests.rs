//! Against brute force on small problems, and bounds on large ones.

use super::*;
use crate::dispatch::testing::Dice;

fn solve(groups: &[Vec<Item>], capacity: f64) -> Option<Solution> {
    super::solve(&groups.iter().map(Vec::as_slice).collect::<Vec<_>>(), capacity)
}

fn brute(groups: &[Vec<Item>], room: f64, time: f64, best: &mut Option<f64>) {
    let Some((first, rest)) = groups.split_first() else {
        *best = Some(best.map_or(time, |b: f64| b.min(time)));
        return;
    };
    for item in first.iter().filter(|item| item.cost <= room + 1e-12) {
        brute(rest, room - item.cost, time + item.time, best);
    }
}

/// Coarse numbers on every other instance, so that ties and equal costs happen.
fn instance(dice: &mut Dice, groups: usize, coarse: bool) -> Vec<Vec<Item>> {
    let number = |dice: &mut Dice| if coarse { (dice.unit() * 5.0).floor() } else { dice.unit() };
    (0..groups)
        .map(|_| (0..1 + dice.below(4)).map(|_| Item { cost: number(dice), time: 1.0 + number(dice) }).collect())
        .collect()
}

#[test]
fn agrees_with_brute_force_on_random_instances() {
    let mut dice = Dice::new(7);
    let mut infeasible = 0;
    for case in 0..4000 {
        let num_groups = 1 + dice.below(7);
        let groups = instance(&mut dice, num_groups, case % 2 == 0);
        let most: f64 = groups.iter().map(|g| g.iter().map(|item| item.cost).fold(0.0, f64::max)).sum();
        let capacity = dice.unit() * most;
        let mut best = None;
        brute(&groups, capacity, 0.0, &mut best);
        let solution = solve(&groups, capacity);
        assert_eq!(solution.is_some(), best.is_some(), "{groups:?} {capacity}");
        let (Some(solution), Some(best)) = (solution, best) else {
            infeasible += 1;
            continue;
        };
        let sum = |value: fn(&Item) -> f64| {
            solution.picks.iter().zip(&groups).map(|(pick, group)| value(&group[*pick])).sum::<f64>()
        };
        assert!(solution.proven);
        assert!((solution.time - best).abs() < 1e-9, "{solution:?} {best} {groups:?} {capacity}");
        assert!((sum(|item| item.time) - solution.time).abs() < 1e-9, "picks are not what was summed");
        assert!(sum(|item| item.cost) <= capacity + 1e-9);
    }
    assert!(infeasible > 50 && infeasible < 3000, "{infeasible} says little");
}

#[test]
fn ten_thousand_groups_are_proven() {
    let mut dice = Dice::new(11);
    let groups: Vec<Vec<Item>> = (0..10_000)
        .map(|_| {
            let weight = 0.1 + dice.unit() * 10.0;
            let slow = Item { cost: 0.0, time: weight };
            std::iter::once(slow)
                .chain((0..7).map(|_| Item { cost: dice.unit().powi(4) * 1e-8, time: weight * (0.4 + dice.unit()) }))
                .collect()
        })
        .collect();
    for capacity in [1e-8, 1e-7, 1e-6, 5e-6] {
        let solution = solve(&groups, capacity).unwrap();
        assert!(solution.proven, "{capacity}: {} {}", solution.time, solution.lower_bound);
        assert!(solution.cost <= capacity * (1.0 + 1e-9));
    }
}

#[test]
fn no_room_is_infeasible_and_much_room_takes_the_fastest() {
    let groups = vec![vec![Item { cost: 1.0, time: 5.0 }, Item { cost: 2.0, time: 3.0 }]; 3];
    assert_eq!(solve(&groups, 2.9), None);
    assert_eq!(solve(&groups, 6.0).unwrap().time, 9.0);
    assert_eq!(solve(&groups, 4.5).unwrap().picks.iter().sum::<usize>(), 1);
    assert_eq!(super::solve(&[], 1.0).unwrap().time, 0.0);
}

#[test]
fn hull_drops_dominated_and_interior_options() {
    let item = |cost, time| Item { cost, time };
    let items = [item(0.0, 10.0), item(1.0, 9.5), item(2.0, 4.0), item(3.0, 4.0), item(4.0, 3.0), item(1.0, 12.0)];
    assert_eq!(hull(&items), [0, 2, 4]);
}
