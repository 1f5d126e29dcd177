//! What is seen of this view and not of the model: kept while the window is open.

use std::sync::Arc;

use loka_core::views::{Flags, PlanColumn, PlanGroup, PlanGroupBy, PlanTable};

use super::Derived;

/// Parts of the view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanPart {
    #[default]
    Choices,
    Findings,
    Overrides,
    Warnings,
    Differences,
    Export,
}

impl PlanPart {
    pub const ALL: [Self; 6] =
        [Self::Choices, Self::Findings, Self::Overrides, Self::Warnings, Self::Differences, Self::Export];
}

/// Which choices are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlanFilter {
    #[default]
    All,
    Overrides,
    Warnings,
    Uncertain,
    Changed,
}

impl PlanFilter {
    pub const ALL: [Self; 5] = [Self::All, Self::Overrides, Self::Warnings, Self::Uncertain, Self::Changed];

    pub fn text(self) -> &'static str {
        match self {
            Self::All => "All",
            Self::Overrides => "Overrides",
            Self::Warnings => "Warnings",
            Self::Uncertain => "Uncertain",
            Self::Changed => "Changed",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Self::All => "Every GEMM of every site",
            Self::Overrides => "Set by hand",
            Self::Warnings => "Named by a warning, or without a latency",
            Self::Uncertain => "In high precision because the best kernel is too close to the threshold to call",
            Self::Changed => "Another kernel than in the plan compared with; without one, than pure Dispatch chooses",
        }
    }

    fn flag(self) -> Option<Flags> {
        match self {
            Self::All => None,
            Self::Overrides => Some(Flags::OVERRIDE),
            Self::Warnings => Some(Flags::WARNS),
            Self::Uncertain => Some(Flags::UNCERTAIN),
            Self::Changed => Some(Flags::CHANGED),
        }
    }
}

/// The order that is shown, and how many choices each filter keeps.
#[derive(Clone, Debug, Default)]
pub struct Order {
    pub places: Vec<u32>,
    pub counts: [usize; 5],
}

/// By which column, reversed or not, what is kept, and whether against a baseline.
type Sorting = (PlanColumn, bool, PlanFilter, bool);

#[derive(Clone, Debug, Default)]
pub struct PlanState {
    pub part: PlanPart,
    pub sort: PlanColumn,
    pub reversed: bool,
    pub keep: PlanFilter,
    /// Choices in groups with sums; `None`: one by one.
    pub group_by: Option<PlanGroupBy>,
    groups: Option<(Arc<PlanTable>, PlanGroupBy, Arc<[PlanGroup]>)>,
    /// What the order was made of: the table, the sort, the filter.
    order: Option<(Arc<PlanTable>, Sorting, Arc<Order>)>,
}

impl PlanState {
    /// Made when the table, the sort or the filter changes, not in every frame.
    pub fn order(&mut self, derived: &Derived) -> Arc<Order> {
        let versus = derived.versus();
        let asked = (self.sort, self.reversed, self.keep, versus.is_some());
        if let Some((table, known, order)) = &self.order
            && Arc::ptr_eq(table, &derived.table)
            && *known == asked
        {
            return order.clone();
        }
        let (table, flag) = (derived.table.clone(), self.keep.flag());
        let places = table.order(&derived.plan, versus, (self.sort, self.reversed), |line| {
            flag.is_none_or(|flag| line.flags.has(flag))
        });
        let count = |keep: PlanFilter| match keep.flag() {
            None => table.lines.len(),
            Some(flag) => table.lines.iter().filter(|line| line.flags.has(flag)).count(),
        };
        let order = Arc::new(Order { places, counts: PlanFilter::ALL.map(count) });
        self.order = Some((table, asked, order.clone()));
        order
    }

    /// Made when the table or what it is grouped by changes.
    pub fn groups(&mut self, derived: &Derived, by: PlanGroupBy) -> Arc<[PlanGroup]> {
        if let Some((table, known, groups)) = &self.groups
            && Arc::ptr_eq(table, &derived.table)
            && *known == by
        {
            return groups.clone();
        }
        let groups: Arc<[PlanGroup]> = derived
            .snapshot
            .as_ref()
            .map_or_else(Vec::new, |snapshot| {
                PlanGroup::all(snapshot, &derived.plan, &derived.table, &derived.answer, by)
            })
            .into();
        self.groups = Some((derived.table.clone(), by, groups.clone()));
        groups
    }

    pub fn sort_by(&mut self, column: PlanColumn) {
        self.reversed = self.sort == column && !self.reversed;
        self.sort = column;
    }
}
