//! The ops: take tensors, check them as `loka.kernels.native_ops` does, launch. There each is described.

use std::ffi::CStr;

use loka_core::engine::cuda::{
    CudaError,
    raw::{BackwardMemory, BlockOutputs, CastMemory, GemmMemory, Gpu, RawStream},
};

use super::{
    OpError, called, gpu,
    symbols::{Kernel, StableValue, Types},
    tensor::{Arguments, Results, TorchTensor},
};

type Done = Result<(), OpError>;

macro_rules! kernels {
    ($($name:literal => $op:ident,)*) => {
        /// What PyTorch calls, by the names of the ops.
        pub const KERNELS: [(&CStr, Kernel); [$($name),*].len()] = [$(($name, {
            unsafe extern "C-unwind" fn kernel(stack: *mut StableValue, num_arguments: u64, _num_results: u64) {
                // SAFETY: PyTorch calls it so.
                unsafe { called(stack, num_arguments, $op) };
            }
            kernel
        })),*];
    };
}

kernels! {
    c"fp8_cast" => fp8_cast,
    c"static_cast" => static_cast,
    c"fp8_gemm" => fp8_gemm,
    c"static_gemm" => static_gemm,
    c"block_gemm" => block_gemm,
    c"block_tail" => block_tail,
    c"block_backward" => block_backward,
}

/// Columns that share BlockNorm's mean square.
const BLOCK: i64 = 256;
/// Copy engine and vector loads alike read from there.
const ALIGNED: u64 = 16;
// As in `loka.h`.
const POWER_OF_TWO: u32 = 1;
const AS_E5M2: u32 = 2;

fn expected(wanted: &str, found: &TorchTensor) -> OpError {
    format!("expected {wanted}, not {found}")
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn said(error: CudaError) -> OpError {
    error.to_string()
}

/// Where an op runs: the GPU of a tensor and its current stream.
fn place(x: &TorchTensor) -> Result<(&'static Gpu, RawStream), OpError> {
    let device = if x.is_cuda { x.device } else { 0 };
    Ok((gpu(device).map_err(said)?, RawStream(x.stream()?)))
}

fn number(size: i64) -> Result<u32, OpError> {
    u32::try_from(size).map_err(|_| format!("a side of {size} is more than a kernel takes"))
}

fn has_size(x: &TorchTensor, dtype: i32, size: i64) -> Done {
    if x.dtype == dtype && x.sizes == [size] && x.is_contiguous {
        return Ok(());
    }
    Err(expected(&format!("{} of [{size}], contiguous", x.torch().types.name(dtype)), x))
}

/// [1] of the tensor, or [rows, 1].
fn is_scale(scale: &TorchTensor, rows: i64) -> Done {
    let fits = scale.sizes == [1] || scale.sizes == [rows, 1];
    if fits && scale.dtype == scale.torch().types.fp32 && scale.is_contiguous {
        return Ok(());
    }
    Err(expected(&format!("torch.float32 of [1] or [{rows}, 1], contiguous"), scale))
}

/// m, n and k of x [m, k] times w [n, k] turned.
fn is_gemm(
    x: &TorchTensor,
    x_scale: &TorchTensor,
    w: &TorchTensor,
    w_scale: &TorchTensor,
    rest: &[Option<&TorchTensor>],
) -> Result<[i64; 3], OpError> {
    let ([m, k], [n, w_k]) = (&x.sizes[..], &w.sizes[..]) else {
        return Err(expected(
            "x [m, k] times w [n, k] turned, of two dimensions",
            if x.sizes.len() == 2 { w } else { x },
        ));
    };
    if k != w_k || w.dtype != w.torch().types.e4m3 {
        return Err(expected(&format!("x {:?} times w {:?} turned, w E4M3", x.sizes, w.sizes), w));
    }
    if n % 16 != 0 || k % 16 != 0 {
        return Err(expected("n and k of multiples of 16 of w [n, k]", w));
    }
    is_scale(x_scale, *m)?;
    is_scale(w_scale, *n)?;
    let others = [x_scale, w, w_scale].into_iter().chain(rest.iter().copied().flatten());
    for other in others {
        if !other.is_beside(x) {
            return Err(format!("x is on device {}, not all of the others are", x.device));
        }
    }
    Ok([*m, *n, *k])
}

fn has_rows(scale: &TorchTensor) -> bool {
    scale.sizes.len() == 2
}

fn address(of: Option<&TorchTensor>) -> u64 {
    of.map_or(0, |tensor| tensor.address)
}

/// The operands of a product, `out` left to be set.
fn memory(
    x: &TorchTensor,
    x_scale: &TorchTensor,
    w: &TorchTensor,
    w_scale: &TorchTensor,
    [m, n, k]: [i64; 3],
) -> Result<GemmMemory, OpError> {
    Ok(GemmMemory {
        x: x.address,
        x_scales: x_scale.address,
        w: w.address,
        w_scales: w_scale.address,
        bias: 0,
        out: 0,
        m: number(m)?,
        n: number(n)?,
        k: number(k)?,
        x_pitch: x.pitch(),
        w_pitch: w.pitch(),
        w_scaled_by_rows: has_rows(w_scale),
    })
}

fn fp8_gemm(arguments: &mut Arguments, results: &mut Results) -> Done {
    let [x, x_scale, w, w_scale] = std::array::from_fn(|_| arguments.tensor());
    let (fast, tiling) = (arguments.flag(), arguments.int());
    let types = arguments.torch().types;
    let sizes = is_gemm(&x, &x_scale, &w, &w_scale, &[])?;
    let is_e5m2 = x.dtype == types.e5m2;
    if !is_e5m2 && x.dtype != types.e4m3 {
        return Err(expected("codes of x", &x));
    }
    let y = x.new_empty(&sizes[..2], types.bf16)?;
    if y.count() > 0 {
        let (x, w) = (x.with_rows(ALIGNED)?, w.with_rows(ALIGNED)?);
        let (gpu, stream) = place(&x)?;
        let at = GemmMemory { out: y.address, ..memory(&x, &x_scale, &w, &w_scale, sizes)? };
        let how = (fast, is_e5m2, has_rows(&x_scale));
        gpu.fp8_gemm(stream, &at, how, u32::try_from(tiling).ok()).map_err(said)?;
    }
    results.push(y);
    Ok(())
}

/// x in BF16 or another type that is named, its one scale, bias and counter.
fn is_static(
    x: &TorchTensor,
    x_scale: &TorchTensor,
    w: &TorchTensor,
    bias: Option<&TorchTensor>,
    saturated: &TorchTensor,
    other: Option<i32>,
) -> Done {
    let Types { bf16, fp32, int64, .. } = x.torch().types;
    if x.dtype != bf16 && Some(x.dtype) != other {
        return Err(expected("BF16 x", x));
    }
    has_size(x_scale, fp32, 1)?;
    bias.map_or(Ok(()), |bias| has_size(bias, bf16, w.sizes[0]))?;
    has_size(saturated, int64, 1)
}

fn static_gemm(arguments: &mut Arguments, results: &mut Results) -> Done {
    let [x, x_scale, w, w_scale] = std::array::from_fn(|_| arguments.tensor());
    let (bias, saturated) = (arguments.maybe(), arguments.tensor());
    let sizes = is_gemm(&x, &x_scale, &w, &w_scale, &[bias.as_ref(), Some(&saturated)])?;
    is_static(&x, &x_scale, &w, bias.as_ref(), &saturated, None)?;
    let y = x.new_empty(&sizes[..2], x.dtype)?;
    if y.count() > 0 {
        let (x, w) = (x.with_rows(ALIGNED)?, w.with_rows(ALIGNED)?);
        let (gpu, stream) = place(&x)?;
        let at =
            GemmMemory { bias: address(bias.as_ref()), out: y.address, ..memory(&x, &x_scale, &w, &w_scale, sizes)? };
        gpu.static_gemm(stream, &at, saturated.address, None).map_err(said)?;
    }
    results.push(y);
    Ok(())
}

fn block_gemm(arguments: &mut Arguments, results: &mut Results) -> Done {
    let [x, x_scale, w, w_scale] = std::array::from_fn(|_| arguments.tensor());
    let (bias, saturated, h_scale) = (arguments.maybe(), arguments.tensor(), arguments.maybe());
    let keep_z = arguments.flag();
    let types = arguments.torch().types;
    let sizes = is_gemm(&x, &x_scale, &w, &w_scale, &[bias.as_ref(), Some(&saturated), h_scale.as_ref()])?;
    is_static(&x, &x_scale, &w, bias.as_ref(), &saturated, Some(types.e4m3))?;
    h_scale.as_ref().map_or(Ok(()), |scale| has_size(scale, types.fp32, 1))?;
    if sizes[1] % BLOCK != 0 {
        return Err(expected(&format!("n of a multiple of {BLOCK} of w [n, k]"), &w));
    }
    let h = x.new_empty(&sizes[..2], if h_scale.is_some() { types.e4m3 } else { types.bf16 })?;
    let z = x.new_empty(if keep_z { &sizes[..2] } else { &[0, 0] }, types.bf16)?;
    if h.count() > 0 {
        let (x, w) = (x.with_rows(ALIGNED)?, w.with_rows(ALIGNED)?);
        let (gpu, stream) = place(&x)?;
        let (to_bf16, codes) = if h_scale.is_some() { (0, h.address) } else { (h.address, 0) };
        let at =
            GemmMemory { bias: address(bias.as_ref()), out: to_bf16, ..memory(&x, &x_scale, &w, &w_scale, sizes)? };
        let to = BlockOutputs { z: if keep_z { z.address } else { 0 }, codes, scale: address(h_scale.as_ref()) };
        let is_codes = x.dtype == types.e4m3;
        gpu.block(stream, &at, is_codes, &to, saturated.address).map_err(said)?;
    }
    results.push(h);
    results.push(z);
    Ok(())
}

/// BF16 [m, n] by blocks.
fn is_blocks(z: &TorchTensor) -> Done {
    match z.sizes[..] {
        [_, n] if n % BLOCK == 0 && z.dtype == z.torch().types.bf16 => Ok(()),
        _ => Err(expected(&format!("BF16 of rows of a multiple of {BLOCK}"), z)),
    }
}

fn block_tail(arguments: &mut Arguments, results: &mut Results) -> Done {
    let z = arguments.tensor();
    is_blocks(&z)?;
    let h = z.new_empty(&z.sizes, z.dtype)?;
    if h.count() > 0 {
        let z = z.ready(ALIGNED)?;
        let (gpu, stream) = place(&z)?;
        let sizes = [number(z.sizes[0])?, number(z.sizes[1])?];
        gpu.block_norm_hard_swish(stream, [z.address, h.address, 0, 0], sizes).map_err(said)?;
    }
    results.push(h);
    Ok(())
}

fn block_backward(arguments: &mut Arguments, results: &mut Results) -> Done {
    let [dh, z] = std::array::from_fn(|_| arguments.tensor());
    let types = arguments.torch().types;
    is_blocks(&z)?;
    if dh.sizes != z.sizes || dh.dtype != z.dtype || !dh.is_beside(&z) {
        return Err(expected(&format!("dh like z, {z}"), &dh));
    }
    let dz = z.new_empty(&z.sizes, types.bf16)?;
    let codes = z.new_empty(&z.sizes, types.e4m3)?;
    let scales = z.new_empty(&[z.sizes[0], 1], types.fp32)?;
    if z.count() > 0 {
        let (dh, z) = (dh.ready(ALIGNED)?, z.ready(ALIGNED)?);
        let (gpu, stream) = place(&z)?;
        let at = BackwardMemory {
            dh: dh.address,
            z: z.address,
            dz: dz.address,
            codes: codes.address,
            row_scales: scales.address,
            m: number(z.sizes[0])?,
            n: number(z.sizes[1])?,
        };
        gpu.block_backward(stream, &at).map_err(said)?;
    }
    for made in [dz, codes, scales] {
        results.push(made);
    }
    Ok(())
}

fn static_cast(arguments: &mut Arguments, results: &mut Results) -> Done {
    let [x, scale, saturated] = std::array::from_fn(|_| arguments.tensor());
    let Types { bf16, fp32, int64, e4m3, .. } = arguments.torch().types;
    has_size(&scale, fp32, 1)?;
    has_size(&saturated, int64, 1)?;
    if x.dtype != bf16 {
        return Err(expected("BF16 x", &x));
    }
    let codes = x.new_empty(&x.sizes, e4m3)?;
    if codes.count() > 0 {
        // Of any alignment: one that is off takes the slower loads.
        let x = x.ready(1)?;
        let (gpu, stream) = place(&x)?;
        let addresses = [x.address, scale.address, codes.address, saturated.address];
        gpu.cast_static(stream, addresses, codes.count() as u64).map_err(said)?;
    }
    results.push(codes);
    Ok(())
}

fn fp8_cast(arguments: &mut Arguments, results: &mut Results) -> Done {
    let (x, granularity, format) = (arguments.tensor(), arguments.text(), arguments.text());
    let [power_of_two, straight, turned] = std::array::from_fn(|_| arguments.flag());
    let Types { bf16, fp32, bytes, e4m3, e5m2, .. } = arguments.torch().types;
    let [rows, cols] = x.sizes[..] else { return Err(expected("BF16 of two dimensions", &x)) };
    if x.dtype != bf16 {
        return Err(expected("BF16 of two dimensions", &x));
    }
    let (by_tensor, is_e5m2) = (granularity == "tensor", format == "e5m2");
    if !(by_tensor || granularity == "row") || !(is_e5m2 || format == "e4m3") {
        return Err(format!("expected a cast by row or tensor to e4m3 or e5m2, not by {granularity} to {format}"));
    }
    let made = |wanted: bool, sizes: [i64; 2]| {
        let scale: &[i64] = if by_tensor { &[1] } else { &[sizes[0], 1] };
        let codes = x.new_codes(if wanted { sizes } else { [0, 0] }, if is_e5m2 { e5m2 } else { e4m3 })?;
        Ok::<_, OpError>((codes, x.new_empty(if wanted { scale } else { &[0] }, fp32)?))
    };
    let (codes, scale) = made(straight, [rows, cols])?;
    let (codes_t, scale_t) = made(turned, [cols, rows])?;
    if x.count() > 0 && (straight || turned) {
        let x = x.ready(ALIGNED)?;
        let (gpu, stream) = place(&x)?;
        let sides = (number(rows)?, number(cols)?);
        let flags = POWER_OF_TWO * u32::from(power_of_two) + AS_E5M2 * u32::from(is_e5m2);
        let (pitch, pitch_t) = (codes.pitch(), codes_t.pitch());
        let operand =
            CastMemory { x: x.address, rows: sides.0, cols: sides.1, flags, pitch, pitch_t, ..CastMemory::default() };
        let scratch = || {
            let needed = gpu.partials_bytes(sides.0, sides.1);
            Ok::<_, OpError>((x.new_empty(&[needed as i64], bytes)?, needed))
        };
        let at = |wanted: bool, tensor: &TorchTensor| if wanted { tensor.address } else { 0 };
        if by_tensor {
            let (partials, partials_bytes) = scratch()?;
            let operand = CastMemory {
                codes: at(straight, &codes),
                scales: if straight { scale.address } else { scale_t.address },
                codes_t: at(turned, &codes_t),
                partials: partials.address,
                partials_bytes,
                ..operand
            };
            gpu.cast_tensorwise(stream, &[operand]).map_err(said)?;
            if straight && turned {
                scale_t.copy_from(&scale)?;
            }
        } else {
            if straight {
                let operand = CastMemory { codes: codes.address, scales: scale.address, ..operand };
                gpu.cast_rowwise(stream, &[operand]).map_err(said)?;
            }
            if turned {
                let (partials, partials_bytes) = scratch()?;
                let operand = CastMemory {
                    codes_t: codes_t.address,
                    scales_t: scale_t.address,
                    partials: partials.address,
                    partials_bytes,
                    ..operand
                };
                gpu.cast_columnwise(stream, &[operand]).map_err(said)?;
            }
        }
    }
    for made in [codes, scale, codes_t, scale_t] {
        results.push(made);
    }
    Ok(())
}
