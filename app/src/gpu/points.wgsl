// Points of a scatter plot, one instance each, as the shapes of theme::glyph. Zoom and drag change uniforms
// alone. A vertex buffer holds the instances, not a storage buffer: WebGL2 has none.

struct Locals {
    /// Of the axes' place: x' = x * scale.x + offset.x in points from the frame's left top; the same for y.
    scale: vec2<f32>,
    offset: vec2<f32>,
    /// The frame's size in points.
    size: vec2<f32>,
    radius: f32,
    pixels_per_point: f32,
    opacity: f32,
    /// Of points whose site is not selected, while one is.
    dimmed: f32,
    /// A number that no site has: none is selected.
    selected: u32,
    /// 1: the target wants linear colours.
    linear: u32,
    colors: array<vec4<f32>, 16>,
};
@group(0) @binding(0) var<uniform> locals: Locals;

struct Varying {
    @builtin(position) position: vec4<f32>,
    @location(0) local: vec2<f32>,
    @location(1) @interpolate(flat) color: vec4<f32>,
    @location(2) @interpolate(flat) look: u32,
};

// Room around a shape for its mark and its soft edge, in radii.
const REACH: f32 = 2.1;

@vertex
fn vs_main(
    @builtin(vertex_index) vertex: u32,
    @location(0) place: vec2<f32>,
    @location(1) site: u32,
    // shape 4 bits | source 2 bits | colour 4 bits
    @location(2) look: u32,
) -> Varying {
    let corner = vec2<f32>(f32(vertex & 1u) * 2.0 - 1.0, f32(vertex >> 1u) * 2.0 - 1.0);
    let center = place * locals.scale + locals.offset;
    let at = center + corner * locals.radius * REACH;
    var out: Varying;
    out.position = vec4<f32>(2.0 * at.x / locals.size.x - 1.0, 1.0 - 2.0 * at.y / locals.size.y, 0.0, 1.0);
    out.local = corner * REACH;
    var alpha = locals.opacity;
    if (locals.selected != 0xffffffffu && locals.selected != site) {
        alpha = alpha * locals.dimmed;
    }
    out.color = locals.colors[(look >> 6u) & 15u] * alpha;
    out.look = look;
    return out;
}

fn circle(p: vec2<f32>, r: f32) -> f32 {
    return length(p) - r;
}

fn square(p: vec2<f32>, half: f32) -> f32 {
    let d = abs(p) - vec2<f32>(half);
    return length(max(d, vec2<f32>(0.0))) + min(max(d.x, d.y), 0.0);
}

// Upwards (y points down), as wide and as high as the painter's.
fn triangle(p: vec2<f32>) -> f32 {
    let a = vec2<f32>(0.0, -1.15);
    let b = vec2<f32>(1.0925, 0.8625);
    let side = normalize(vec2<f32>(b.y - a.y, a.x - b.x));
    return max(dot(vec2<f32>(abs(p.x), p.y) - a, side), p.y - b.y);
}

/// How much of a pixel lies inside, `d` in radii.
fn inside(d: f32) -> f32 {
    return clamp(0.5 - d * locals.radius * locals.pixels_per_point, 0.0, 1.0);
}

/// A line around the shape, 1.3 points wide.
fn outline(d: f32) -> f32 {
    return inside(abs(d) - 0.65 / locals.radius);
}

fn coverage(p: vec2<f32>, shape: u32, fill: f32) -> f32 {
    switch shape {
        case 0u: { let d = circle(p, 1.0); return max(inside(d) * fill, outline(d)); }
        case 1u: {
            let d = circle(p, 1.0);
            return max(inside(max(d, p.x)) * fill, outline(d));
        }
        case 2u: { let d = triangle(p); return max(inside(d) * fill, outline(d)); }
        case 3u: { let d = square(p, 0.85); return max(inside(d) * fill, outline(d)); }
        case 4u: { return max(outline(circle(p, 1.0)), inside(circle(p, 0.35)) * fill); }
        case 5u: { return outline(square(p, 0.85)); }
        case 6u: { return outline(circle(p, 1.0)); }
        default: { return inside(max(abs(p.x) - 1.0, abs(p.y) - 0.65 / locals.radius)); }
    }
}

/// Up and to the right, clear of the shape: a dot where it was measured here, a notch where it is modelled.
fn mark(p: vec2<f32>, source: u32) -> f32 {
    let corner = 1.0 + 1.5 / locals.radius;
    let size = max(0.55, 2.2 / locals.radius);
    if (source == 1u) {
        return inside(circle(p - vec2<f32>(corner, -corner), size * 0.7));
    }
    if (source == 3u) {
        let q = vec2<f32>(corner - p.x, p.y + corner);
        let d = max(max(-q.x, -q.y), (q.x + q.y - size * 1.5) * 0.7071);
        return inside(d);
    }
    return 0.0;
}

fn linear_from_gamma(gamma: vec3<f32>) -> vec3<f32> {
    let cutoff = gamma < vec3<f32>(0.04045);
    let lower = gamma / vec3<f32>(12.92);
    let higher = pow((gamma + vec3<f32>(0.055)) / vec3<f32>(1.055), vec3<f32>(2.4));
    return select(higher, lower, cutoff);
}

@fragment
fn fs_main(in: Varying) -> @location(0) vec4<f32> {
    let source = (in.look >> 4u) & 3u;
    // A modelled point is pale: most of its weight is its outline.
    let fill = select(1.0, 0.3, source == 3u);
    let cover = max(coverage(in.local, in.look & 15u, fill), mark(in.local, source));
    let color = in.color * cover;
    if (locals.linear == 1u) {
        return vec4<f32>(linear_from_gamma(color.rgb), color.a);
    }
    return color;
}
