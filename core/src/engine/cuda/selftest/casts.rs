//! The casts of BF16 operands, bit for bit: every recipe on every shape and kind of input, one and two operands in
//! a launch, fast and element by element, with clusters and without.

use loka_kernels::casts::{
    self, AS_E5M2, BLOCK_128X128, COLUMN_AMAX, CastOperand, POWER_OF_TWO, ROW_CAST, StaticOperand, StaticOperands,
};

use crate::{model::Format, numerics::round};

use super::{
    super::{CudaError, arguments::Arguments, stream_context::StreamContext},
    CheckOutcome, POISONS, Problem, Suite,
    guarded::{Guarded, same, same_codes, same_floats},
    inputs::{Kind, bf16_bits},
    launch,
    reference::{Casted, Groups, Rule, cast, encode},
};

/// Ragged, minimal, and on both sides of every limit of the kernels: 1024 and 16,384 columns, whole tiles.
const SHAPES: [(usize, usize); 14] = [
    (1, 16),
    (3, 16),
    (17, 48),
    (16, 128),
    (128, 128),
    (130, 272),
    (7, 13),
    (64, 4096),
    (2048, 256),
    (256, 2048),
    (5, 16_392),
    (3, 32_776),
    (2, 65_544),
    (2, 123_200),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Row,
    Column,
    Tensor,
    Block,
    Square,
}

/// One way to call the kernels.
#[derive(Clone, Copy, Debug)]
struct CastRecipe {
    name: &'static str,
    family: Family,
    /// Codes as they lie are wanted, and their transposed copy.
    plain: bool,
    turned: bool,
}

const fn recipe(name: &'static str, family: Family, plain: bool, turned: bool) -> CastRecipe {
    CastRecipe { name, family, plain, turned }
}

const ROW: CastRecipe = recipe("cast_rowwise", Family::Row, true, false);
const COLUMN: CastRecipe = recipe("cast_columnwise", Family::Column, false, true);
const TENSOR_BOTH: CastRecipe = recipe("cast_tensorwise both", Family::Tensor, true, true);
const SQUARE_BOTH: CastRecipe = recipe("cast_blockwise 128x128 both", Family::Square, true, true);
const BLOCK: CastRecipe = recipe("cast_blockwise 1x128", Family::Block, true, false);

const RECIPES: [CastRecipe; 11] = [
    ROW,
    COLUMN,
    recipe("cast_tensorwise", Family::Tensor, true, false),
    recipe("cast_tensorwise transposed", Family::Tensor, false, true),
    TENSOR_BOTH,
    BLOCK,
    recipe("cast_blockwise 1x128 transposed", Family::Block, false, true),
    recipe("cast_blockwise 1x128 both", Family::Block, true, true),
    recipe("cast_blockwise 128x128", Family::Square, true, false),
    recipe("cast_blockwise 128x128 transposed", Family::Square, false, true),
    SQUARE_BOTH,
];

/// One operand to cast.
#[derive(Clone, Copy, Debug)]
struct Job {
    recipe: CastRecipe,
    shape: (usize, usize),
    kind: Kind,
    /// [`POWER_OF_TWO`] and [`AS_E5M2`].
    flags: u32,
    /// Bytes that pointers lie beyond an aligned address.
    offset: usize,
    /// Rows of codes begin at lines of memory; else they lie behind one another.
    spaced: bool,
}

impl Job {
    fn name(&self) -> String {
        let (rows, cols) = self.shape;
        let format = if self.flags & AS_E5M2 != 0 { "E5M2" } else { "E4M3" };
        let power = if self.flags & POWER_OF_TWO != 0 { ", powers of two" } else { "" };
        let offset = if self.offset > 0 { ", unaligned" } else { "" };
        let spaced = if self.spaced { ", rows at lines" } else { "" };
        format!("{} [{rows}, {cols}] {format}{power}, {}{offset}{spaced}", self.recipe.name, self.kind.name())
    }

    /// From one row of so many codes to the next.
    fn pitch(&self, cols: usize) -> usize {
        if self.spaced { casts::pitch(cols) } else { cols }
    }

    fn is_e5m2(&self) -> bool {
        self.flags & AS_E5M2 != 0
    }

    fn kernel_flags(&self) -> u32 {
        self.flags
            | match self.recipe.family {
                Family::Row => ROW_CAST,
                Family::Column => COLUMN_AMAX,
                Family::Square => BLOCK_128X128,
                Family::Tensor | Family::Block => 0,
            }
    }

    /// Groups of the codes as they lie and of the transposed copy.
    fn groups(&self) -> (Groups, Groups) {
        match self.recipe.family {
            Family::Row => (Groups::Row, Groups::Row),
            Family::Column => (Groups::Column, Groups::Column),
            Family::Tensor => (Groups::Tensor, Groups::Tensor),
            Family::Block => (Groups::AlongRows, Groups::AlongColumns),
            Family::Square => (Groups::Square, Groups::SquareTurned),
        }
    }

    fn rule(&self) -> Rule {
        let format = if self.is_e5m2() { Format::E5m2 } else { Format::E4m3 };
        Rule { format, power_of_two: self.flags & POWER_OF_TWO != 0, floor_amax: 0.0 }
    }
}

/// A job with its input and what must come out.
struct Prepared {
    job: Job,
    x: Vec<u16>,
    plain: Option<Casted>,
    turned: Option<Casted>,
}

impl Prepared {
    fn new(job: Job) -> Self {
        let (rows, cols) = job.shape;
        let values: Vec<f32> = job.kind.values(rows * cols).into_iter().map(round::bf16).collect();
        let (groups, groups_turned) = job.groups();
        let by = |groups| cast(&values, job.shape, groups, job.rule());
        // The tensorwise kernel leaves its one scale in the same place whatever is wanted.
        let plain = job.recipe.plain || job.recipe.family == Family::Tensor;
        Self {
            x: bf16_bits(&values),
            plain: plain.then(|| by(groups)),
            turned: job.recipe.turned.then(|| by(groups_turned)),
            job,
        }
    }
}

/// Device memory of one operand.
struct Memory {
    x: Guarded,
    codes: Option<Guarded>,
    scales: Option<Guarded>,
    codes_t: Option<Guarded>,
    scales_t: Option<Guarded>,
    partials: Guarded,
}

impl Memory {
    fn new(lane: &StreamContext, prepared: &Prepared, poison: u8) -> Result<Self, CudaError> {
        let Prepared { job, x, plain, turned } = prepared;
        let (rows, cols) = job.shape;
        let (codes, floats) = (
            |[rows, cols]: [usize; 2]| Guarded::poisoned(lane, rows * job.pitch(cols), job.offset, poison),
            |count: usize| Guarded::poisoned(lane, 4 * count, 0, poison),
        );
        let turned_scales = turned.as_ref().filter(|_| job.recipe.family != Family::Tensor);
        let partials = casts::partials_bytes(rows as u32, cols as u32, lane.stream.device.multiprocessors);
        Ok(Self {
            x: Guarded::holding(lane, x, job.offset, poison)?,
            codes: job.recipe.plain.then(|| codes([rows, cols])).transpose()?,
            scales: plain.as_ref().map(|cast| floats(cast.scales.len())).transpose()?,
            codes_t: job.recipe.turned.then(|| codes([cols, rows])).transpose()?,
            scales_t: turned_scales.map(|cast| floats(cast.scales.len())).transpose()?,
            partials: Guarded::poisoned(lane, partials as usize, 0, poison)?,
        })
    }

    fn operand(&self, job: &Job) -> CastOperand {
        let address = |memory: &Option<Guarded>| memory.as_ref().map_or(0, Guarded::address);
        CastOperand {
            x: self.x.address(),
            codes: address(&self.codes),
            scales: address(&self.scales),
            codes_t: address(&self.codes_t),
            scales_t: address(&self.scales_t),
            partials: self.partials.address(),
            rows: job.shape.0 as u32,
            cols: job.shape.1 as u32,
            flags: job.kernel_flags(),
            pitch: if job.spaced { job.pitch(job.shape.1) as u32 } else { 0 },
            pitch_t: if job.spaced { job.pitch(job.shape.0) as u32 } else { 0 },
            ..CastOperand::default()
        }
    }

    fn compare(&self, lane: &StreamContext, prepared: &Prepared) -> CheckOutcome {
        let Prepared { job, x, plain, turned } = prepared;
        self.partials.read::<u8>(lane)?;
        same("the input", &self.x.read::<u16>(lane)?, x)?;
        let scales = |what: &str, memory: &Option<Guarded>, cast: &Option<Casted>| match (memory, cast) {
            (Some(memory), Some(cast)) => same_floats(what, &memory.read(lane)?, &cast.scales_padded_with(1.0)),
            _ => Ok(()),
        };
        scales("scales", &self.scales, plain)?;
        scales("scales_t", &self.scales_t, turned)?;
        let (rows, cols) = job.shape;
        if let (Some(memory), Some(cast)) = (&self.codes, plain) {
            let found = memory.read_rows(lane, cols, job.pitch(cols))?;
            same_codes("codes", &found, &cast.codes, job.is_e5m2())?;
        }
        if let (Some(memory), Some(cast)) = (&self.codes_t, turned) {
            let found = memory.read_rows(lane, rows, job.pitch(rows))?;
            same_codes("codes_t", &found, &cast.turned(rows, cols), job.is_e5m2())?;
        }
        Ok(())
    }
}

/// One or two operands of a family through its launches.
fn run(lane: &StreamContext, jobs: &[Prepared], has_clusters: bool) -> CheckOutcome {
    for poison in POISONS {
        let memories = jobs.iter().map(|job| Memory::new(lane, job, poison)).collect::<Result<Vec<_>, _>>()?;
        let mut operands = [CastOperand::default(); 2];
        for ((operand, memory), prepared) in operands.iter_mut().zip(&memories).zip(jobs) {
            *operand = memory.operand(&prepared.job);
        }
        launch_all(lane, jobs[0].job.recipe.family, &mut operands, has_clusters)?;
        for (memory, prepared) in memories.iter().zip(jobs) {
            memory.compare(lane, prepared)?;
        }
    }
    Ok(())
}

fn launch_all(
    lane: &StreamContext,
    family: Family,
    operands: &mut [CastOperand; 2],
    has_clusters: bool,
) -> Result<(), CudaError> {
    let processors = lane.stream.device.multiprocessors;
    let go =
        |entry, grid, [a, b]: [CastOperand; 2]| launch(lane, entry, grid, &Arguments::new().structure(a).structure(b));
    match family {
        Family::Row | Family::Column => {
            let grid = casts::cast_rowwise(operands, processors, has_clusters);
            go("cast_rowwise", grid, *operands)?;
            // Those by rows are done.
            let mut rest = operands.map(|o| if o.flags & COLUMN_AMAX != 0 { o } else { CastOperand::default() });
            let grid = casts::cast_columnwise(&mut rest, processors);
            go("cast_columnwise", grid, rest)
        }
        Family::Tensor => {
            let grid = casts::amax_tensor(operands, processors);
            go("amax_tensor", grid, *operands)?;
            let grid = casts::cast_tensorwise(operands, processors);
            go("cast_tensorwise", grid, *operands)
        }
        Family::Block | Family::Square => {
            let grid = casts::cast_blockwise(operands, processors);
            go("cast_blockwise", grid, *operands)
        }
    }
}

pub(super) fn check(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    let clusters = suite.engine.device.capability >= (9, 0);
    for recipe in RECIPES {
        for (s, shape) in SHAPES.into_iter().enumerate() {
            for (k, kind) in Kind::ALL.into_iter().enumerate() {
                // All four combinations of the two flags come by at every shape and kind of small operands.
                let flags = (s + k) as u32 % 4;
                let job = Job { recipe, shape, kind, flags, offset: 0, spaced: false };
                suite.check(job.name(), |lane| run(lane, &[Prepared::new(job)], clusters))?;
            }
            if shape.0 * shape.1 < 1_000_000 {
                let (kind, flags) = (Kind::ALL[s % Kind::ALL.len()], s as u32 % 4);
                let job = Job { recipe, shape, kind, flags, offset: 0, spaced: true };
                suite.check(job.name(), |lane| run(lane, &[Prepared::new(job)], clusters))?;
            }
        }
        for (s, shape) in [(3, 16), (17, 48), (130, 272), (256, 2048), (5, 16_392)].into_iter().enumerate() {
            let kind = Kind::ALL[(2 * s) % Kind::ALL.len()];
            let job = Job { recipe, shape, kind, flags: s as u32 % 4, offset: 2, spaced: false };
            suite.check(job.name(), |lane| run(lane, &[Prepared::new(job)], clusters))?;
        }
    }
    pairs(suite, clusters)?;
    without_clusters(suite)?;
    with_known_scale(suite)?;
    by_known_scales(suite)
}

/// Two operands of different shapes, kinds and flags in one launch.
fn pairs(suite: &mut Suite<'_>, clusters: bool) -> Result<(), CudaError> {
    let recipes =
        [(ROW, ROW), (ROW, COLUMN), (COLUMN, ROW), (COLUMN, COLUMN), (TENSOR_BOTH, RECIPES[2]), (BLOCK, SQUARE_BOTH)];
    let shapes = [(2, 6), (9, 5), (12, 8), (0, 13), (7, 7), (10, 3)];
    for (first, second) in recipes {
        for (s, (a, b)) in shapes.into_iter().enumerate() {
            let job = |recipe, shape: usize, step: usize| {
                let kind = Kind::ALL[(step * s + shape) % Kind::ALL.len()];
                Job { recipe, shape: SHAPES[shape], kind, flags: (s + step) as u32 % 4, offset: 0, spaced: step == 2 }
            };
            let (a, b) = (job(first, a, 1), job(second, b, 2));
            let name = format!("{}; in one launch with {}", a.name(), b.name());
            suite.check(name, |lane| run(lane, &[Prepared::new(a), Prepared::new(b)], clusters))?;
        }
    }
    Ok(())
}

/// Long rows as GPUs without clusters take them.
fn without_clusters(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    for (s, shape) in SHAPES.into_iter().enumerate().filter(|(_, (_, cols))| *cols > 4096) {
        for kind in [Kind::Normal, Kind::OneNan] {
            let job = Job { recipe: ROW, shape, kind, flags: s as u32 % 4, offset: 0, spaced: false };
            suite.check(format!("{}, without clusters", job.name()), |lane| run(lane, &[Prepared::new(job)], false))?;
        }
    }
    Ok(())
}

/// `cast_e4m3_static` with its count of what saturates.
fn with_known_scale(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    // BlockNorm's bound of 16 to the largest code; one; the floor; NaN and infinity.
    let scales = [16.0 / 448.0, 1.0, 1e-12, 0.004, f32::INFINITY, f32::NAN];
    for (s, scale) in scales.into_iter().enumerate() {
        for (k, kind) in Kind::ALL.into_iter().enumerate() {
            let count = [1, 37, 8192, 300_007][(s + k) % 4];
            let offset = 2 * usize::from((s + k) % 3 == 2);
            let name = format!(
                "cast_e4m3_static [{count}] by {scale}, {}{}",
                kind.name(),
                if offset > 0 { ", unaligned" } else { "" }
            );
            suite.check(name, |lane| static_cast(lane, &kind.values(count), scale, offset, count))?;
        }
    }
    for (rows, cols) in [(3, 16), (129, 400), (64, 1040), (7, 13)] {
        let name = format!("cast_e4m3_static [{rows}, {cols}], rows at lines");
        suite.check(name, |lane| static_cast(lane, &Kind::Normal.values(rows * cols), 0.004, 0, cols))?;
    }
    Ok(())
}

/// Values in rows of `cols`; the codes of more than one begin at lines.
fn static_cast(lane: &StreamContext, values: &[f32], scale: f32, offset: usize, cols: usize) -> CheckOutcome {
    let pitch = if cols < values.len() { casts::pitch(cols) } else { cols };
    let values: Vec<f32> = values.iter().copied().map(round::bf16).collect();
    let count = values.len() as u64;
    let wanted: Vec<u8> = values.iter().map(|value| encode(Format::E4m3, value / scale)).collect();
    let saturated = values.iter().filter(|value| (**value / scale).abs() > 448.0).count() as u64;
    for poison in POISONS {
        let x = Guarded::holding(lane, &bf16_bits(&values), offset, poison)?;
        let scale = Guarded::holding(lane, &[scale], 0, poison)?;
        let codes = Guarded::poisoned(lane, values.len() / cols * pitch, offset, poison)?;
        // The count is added to what was there.
        let total = Guarded::holding(lane, &[5u64], 0, poison)?;
        let grid = casts::cast_e4m3_static(count, lane.stream.device.multiprocessors);
        let arguments = Arguments::new()
            .value(x.address())
            .value(scale.address())
            .value(codes.address())
            .value(total.address())
            .value(count)
            .value(cols as u32)
            .value(pitch as u32);
        launch(lane, "cast_e4m3_static", grid, &arguments)?;
        same_codes("codes", &codes.read_rows(lane, cols, pitch)?, &wanted, false)?;
        let found = total.read::<u64>(lane)?;
        if found != [5 + saturated] {
            return Err(Problem::Wrong(format!("counted {} saturated, not {saturated}", found[0].wrapping_sub(5))));
        }
    }
    Ok(())
}

/// `cast_static_turned`: four matrices in a launch, each with a scale of its own; codes that are transposed where rows
/// allow it.
fn by_known_scales(suite: &mut Suite<'_>) -> Result<(), CudaError> {
    const SHAPES: [(usize, usize); 6] = [(16, 8), (48, 264), (33, 512), (1, 1032), (128, 2048), (1040, 256)];
    const SCALES: [f32; 4] = [1.0, 0.007_812_5, 64.0, 1.907_348_6e-6];
    for (k, kind) in Kind::ALL.into_iter().enumerate() {
        for count in 1..=4 {
            let given: Vec<_> = (0..count).map(|at| (SHAPES[(k + at) % 6], SCALES[(k + count + at) % 4])).collect();
            let name = format!("cast_static_turned {given:?}, {}", kind.name());
            suite.check(name, |lane| cast_by_known_scales(lane, kind, &given))?;
        }
    }
    Ok(())
}

fn cast_by_known_scales(lane: &StreamContext, kind: Kind, given: &[((usize, usize), f32)]) -> CheckOutcome {
    for poison in POISONS {
        let mut operands = StaticOperands::default();
        let mut matrices = Vec::new();
        for (to, &((rows, cols), scale)) in operands.of.iter_mut().zip(given) {
            let values: Vec<f32> = kind.values(rows * cols).into_iter().map(round::bf16).collect();
            let x = Guarded::holding(lane, &bf16_bits(&values), 0, poison)?;
            let scale_at = Guarded::holding(lane, &[scale], 0, poison)?;
            let codes = Guarded::poisoned(lane, rows * cols, 0, poison)?;
            let is_turned = rows.is_multiple_of(16);
            let codes_t = Guarded::poisoned(lane, if is_turned { rows * cols } else { 0 }, 0, poison)?;
            let saturated = Guarded::holding(lane, &[5u64], 0, poison)?;
            let amax = Guarded::holding(lane, &[0f32], 0, poison)?;
            *to = StaticOperand {
                x: x.address(),
                scale: scale_at.address(),
                codes: codes.address(),
                codes_t: if is_turned { codes_t.address() } else { 0 },
                saturated: saturated.address(),
                amax: amax.address(),
                rows: rows as u32,
                cols: cols as u32,
            };
            matrices.push((values, codes, codes_t, saturated, amax, (x, scale_at)));
        }
        let grid = casts::cast_static_turned(&mut operands)
            .ok_or_else(|| Problem::Wrong("the sizes were refused".to_owned()))?;
        launch(lane, "cast_static_turned", grid, &Arguments::new().structure(operands))?;
        for ((values, codes, codes_t, saturated, amax, _), &((rows, _), scale)) in matrices.iter().zip(given) {
            let (count, cols) = (values.len(), values.len() / rows);
            let wanted: Vec<u8> = values.iter().map(|value| encode(Format::E4m3, value / scale)).collect();
            same_codes("codes", &codes.read::<u8>(lane)?, &wanted, false)?;
            if rows.is_multiple_of(16) {
                let turned: Vec<u8> = (0..count).map(|i| wanted[i % rows * cols + i / rows]).collect();
                same_codes("codes transposed", &codes_t.read::<u8>(lane)?, &turned, false)?;
            }
            let beyond = values.iter().filter(|value| (**value / scale).abs() > 448.0).count() as u64;
            same("saturated", &saturated.read::<u64>(lane)?, &[5 + beyond])?;
            same_floats("amax", &amax.read::<f32>(lane)?, &[crate::numerics::amax(values)])?;
        }
    }
    Ok(())
}
