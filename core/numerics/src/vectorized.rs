//! Runs a loop with the widest vectors of the machine.

/// `vectorized!((name: Type = value, ...) -> Output { body })`: compiles `body` once for each
/// instruction set and picks one at run time. A closure would do but for its call shim, which the
/// compiler does not inline across instruction sets: the loop would fall back to SSE2.
macro_rules! vectorized {
    (($($name:ident : $ty:ty = $value:expr),* $(,)?) -> $out:ty $body:block) => {{
        struct Op<'a> {
            $($name: $ty,)*
            lifetime: std::marker::PhantomData<&'a ()>,
        }
        impl<'a> pulp::WithSimd for Op<'a> {
            type Output = $out;

            #[inline(always)]
            fn with_simd<S: pulp::Simd>(self, _simd: S) -> $out {
                let Self { $($name,)* lifetime: _ } = self;
                $body
            }
        }
        pulp::Arch::new().dispatch(Op { $($name: $value,)* lifetime: std::marker::PhantomData })
    }};
}

pub(crate) use vectorized;
