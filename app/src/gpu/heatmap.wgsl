// One rectangle, coloured pixel by pixel from a texture of cells. Mirrors `Picture::paint_cell` in picture.rs: the
// same edges, the same marks, the same least sizes. Integer textures are read with textureLoad: WebGL2 has that.

struct Params {
    // Corner of the picture, pixels per point, height of a row.
    frame: vec4f,
    // Top of the first row from the corner; width of a column; rows; columns.
    cells: vec4f,
    // Log2 (or value) of the low end, 1 / (high - low), 1 where it is a log scale, 1 where there is a scale.
    scale: vec4f,
    // Groups; 1 where numbers stand in the cells; 1 where the target wants linear colours; radius of the disc.
    flags: vec4f,
    // Left edge, first column, columns.
    groups: array<vec4f, 4>,
    waiting: vec4f,
    hatch: vec4f,
    beyond: vec4f,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var cells: texture_2d<u32>;
@group(0) @binding(2) var colors: texture_2d<f32>;

@vertex
fn vertex(@builtin(vertex_index) at: u32) -> @builtin(position) vec4f {
    // One triangle over the whole viewport.
    let x = f32(at & 1u) * 4.0 - 1.0;
    let y = f32(at >> 1u) * 4.0 - 1.0;
    return vec4f(x, y, 0.0, 1.0);
}

fn snap(edge: f32) -> f32 {
    return ceil(edge - 0.5);
}

fn linear(color: vec3f) -> vec3f {
    return select(pow((color + 0.055) / 1.055, vec3f(2.4)), color / 12.92, color <= vec3f(0.04045));
}

// Premultiplied, as egui blends.
fn finish(color: vec3f, alpha: f32) -> vec4f {
    let shown = select(color, linear(color), params.flags.z > 0.5);
    return vec4f(shown * alpha, alpha);
}

fn share_of(value: f32) -> f32 {
    let at = select(value, log2(max(value, 1e-37)), params.scale.z > 0.5);
    // Beyond what a float holds is beyond the scale.
    return clamp((min(at, 3e38) - params.scale.x) * params.scale.y, 0.0, 1.0);
}

fn color_of(value: f32) -> vec3f {
    let last = f32(textureDimensions(colors).x - 1u);
    let at = share_of(value) * last;
    let below = u32(floor(at));
    let above = min(below + 1u, u32(last));
    let from_color = textureLoad(colors, vec2u(below, 0u), 0).rgb;
    let to_color = textureLoad(colors, vec2u(above, 0u), 0).rgb;
    return mix(from_color, to_color, fract(at));
}

fn ink_on(color: vec3f) -> vec3f {
    let light = dot(linear(color), vec3f(0.2126, 0.7152, 0.0722));
    return select(vec3f(245.0 / 255.0), vec3f(16.0 / 255.0), light > 0.18);
}

struct Place {
    column: i32,
    left: f32,
    right: f32,
}

fn place_of(x: f32) -> Place {
    for (var at = 0; at < i32(params.flags.x); at++) {
        let group = params.groups[at];
        let inside = floor((x - group.x) / params.cells.y);
        if inside >= 0.0 && inside < group.z {
            let left = snap(group.x + inside * params.cells.y);
            let right = snap(group.x + (inside + 1.0) * params.cells.y);
            return Place(i32(group.y + inside), left, right);
        }
    }
    return Place(-1, 0.0, 0.0);
}

@fragment
fn fragment(@builtin(position) position: vec4f) -> @location(0) vec4f {
    let at = position.xy - params.frame.xy;
    let column = place_of(at.x);
    let row = floor((at.y - params.cells.x) / params.frame.w);
    if column.column < 0 || row < 0.0 || row >= params.cells.z {
        discard;
    }
    let texel = textureLoad(cells, vec2i(column.column, i32(row)), 0);
    let bits = texel.g;
    var low = vec2f(column.left, snap(params.cells.x + row * params.frame.w));
    var high = vec2f(column.right, snap(params.cells.x + (row + 1.0) * params.frame.w));
    let whole = high - low;
    high -= select(vec2f(0.0), vec2f(1.0), whole >= vec2f(4.0));
    if (bits & 512u) != 0u {
        let inset = floor(whole.y * 0.18);
        low.y += inset;
        high.y -= inset;
    }
    if any(at < low) || any(at > high) {
        discard;
    }
    return cell(bitcast<f32>(texel.r), bits, at - low, high - low);
}

// `at`: in the cell of that size, in pixels.
fn cell(value: f32, bits: u32, at: vec2f, size: vec2f) -> vec4f {
    let points = params.frame.z;
    if (bits & 2u) == 0u || params.scale.w < 0.5 {
        if (bits & 1u) == 0u {
            return vec4f(finish(params.waiting.rgb, params.waiting.a));
        }
        let period = 5.0 * points;
        let along = (at.x + at.y) % period;
        // Half of the line's width at each side, as its ends are softened.
        let distance = min(along, period - along) / sqrt(2.0);
        return finish(params.hatch.rgb, params.hatch.a * clamp(0.5 * points + 0.5 - distance, 0.0, 1.0));
    }
    var color = color_of(value);
    let ground = color;
    let ink = ink_on(color);
    let least = min(size.x, size.y);
    if (bits & 256u) != 0u && least >= 5.0 && (any(at < vec2f(1.0)) || any(at > size - 1.0)) {
        color = mix(color, params.beyond.rgb, params.beyond.a);
    }
    if (bits & 32u) != 0u && least >= 10.0 && (size.x - at.x) + at.y < 4.0 * points {
        color = ink;
    }
    if (bits & 16u) != 0u && least >= 6.0 {
        let center = select(0.5 * size, vec2f(4.5 * points), params.flags.y > 0.5);
        let radius = select(clamp(0.28 * size.x / points, 2.2, 3.2), 2.4, params.flags.y > 0.5) * points;
        let distance = length(at - center);
        color = mix(color, ink, clamp(radius + 0.5 - distance, 0.0, 1.0));
        if (bits & 64u) != 0u {
            color = mix(color, ground, clamp(0.5 * radius + 0.5 - distance, 0.0, 1.0));
        }
    }
    return finish(color, 1.0);
}
