//! Takes points as numbers and where the axes lie, draws them in one call. The instances go to the GPU when
//! they change, and then only the uniforms do: zoom, drag and selection cost nothing.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use eframe::{
    egui_wgpu::{Callback, CallbackResources, CallbackTrait, ScreenDescriptor},
    wgpu,
};
use egui::{Color32, PaintCallback, PaintCallbackInfo, Rect, Vec2};
use loka_core::model::{LatencySource, Quadrant};

/// Colours that a drawing may have.
pub const MAX_COLORS: usize = 16;

/// One point as the shader reads it.
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
pub struct Instance {
    place: [f32; 2],
    site: u32,
    look: u32,
}

impl Instance {
    /// `color`: its number in [`Drawing::colors`].
    pub fn new(place: [f32; 2], site: u32, quadrant: Quadrant, source: LatencySource, color: u8) -> Self {
        let shape: u32 = match quadrant {
            Quadrant::SafeFast => 0,
            Quadrant::SafeSlow => 1,
            Quadrant::UnsafeFast => 2,
            Quadrant::UnsafeSlow => 3,
            Quadrant::SafeUnknown => 4,
            Quadrant::UnsafeUnknown => 5,
            Quadrant::Uncertain => 6,
            Quadrant::Unsupported => 7,
        };
        let source: u32 = match source {
            LatencySource::None => 0,
            LatencySource::Measured => 1,
            LatencySource::Recorded => 2,
            LatencySource::Modelled => 3,
        };
        Self { place, site, look: shape | source << 4 | (u32::from(color) & 15) << 6 }
    }
}

/// Instances with the number of their making: the same number is the same points.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    pub version: u64,
    pub all: Arc<Vec<Instance>>,
}

/// How they are drawn in this frame.
#[derive(Clone, Debug)]
pub struct Drawing {
    pub instances: Instances,
    /// Points on screen a unit of each axis, and where the axes' zero lies from the frame's left top.
    pub scale: Vec2,
    pub offset: Vec2,
    pub radius: f32,
    pub opacity: f32,
    /// The site that stands out; the others are this much paler.
    pub selected: Option<u32>,
    pub dimmed: f32,
    pub colors: [Color32; MAX_COLORS],
}

/// A shape for the painter: the points within `frame`, drawn into textures of `format`.
pub fn callback(frame: Rect, drawing: Drawing, format: wgpu::TextureFormat) -> PaintCallback {
    Callback::new_paint_callback(frame, Painting { drawing, size: frame.size(), format })
}

/// As the shader's `Locals`.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Locals {
    scale: [f32; 2],
    offset: [f32; 2],
    size: [f32; 2],
    radius: f32,
    pixels_per_point: f32,
    opacity: f32,
    dimmed: f32,
    selected: u32,
    linear: u32,
    colors: [[f32; 4]; MAX_COLORS],
}

struct Painting {
    drawing: Drawing,
    size: Vec2,
    format: wgpu::TextureFormat,
}

impl Painting {
    fn locals(&self, pixels_per_point: f32) -> Locals {
        let drawing = &self.drawing;
        // Gamma space, alpha multiplied in, as egui blends.
        let color = |color: Color32| color.to_array().map(|channel| f32::from(channel) / 255.0);
        Locals {
            scale: drawing.scale.into(),
            offset: drawing.offset.into(),
            size: self.size.into(),
            radius: drawing.radius,
            pixels_per_point,
            opacity: drawing.opacity,
            dimmed: drawing.dimmed,
            selected: drawing.selected.unwrap_or(u32::MAX),
            linear: u32::from(self.format.is_srgb()),
            colors: drawing.colors.map(color),
        }
    }
}

impl CallbackTrait for Painting {
    fn prepare(
        &self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        screen: &ScreenDescriptor,
        _: &mut wgpu::CommandEncoder,
        resources: &mut CallbackResources,
    ) -> Vec<wgpu::CommandBuffer> {
        if resources.get::<Resources>().is_none() {
            resources.insert(Resources::new(device, self.format));
        }
        if let Some(own) = resources.get_mut::<Resources>() {
            own.upload(device, queue, &self.drawing.instances);
            queue.write_buffer(&own.locals, 0, bytemuck::bytes_of(&self.locals(screen.pixels_per_point)));
        }
        Vec::new()
    }

    fn paint(&self, _: PaintCallbackInfo, pass: &mut wgpu::RenderPass<'static>, resources: &CallbackResources) {
        let Some(own) = resources.get::<Resources>().filter(|own| own.count > 0) else { return };
        pass.set_pipeline(&own.pipeline);
        pass.set_bind_group(0, &own.bind_group, &[]);
        pass.set_vertex_buffer(0, own.instances.slice(..));
        pass.draw(0..4, 0..own.count);
    }
}

/// What stays on the GPU between frames.
struct Resources {
    pipeline: wgpu::RenderPipeline,
    locals: wgpu::Buffer,
    bind_group: wgpu::BindGroup,
    instances: wgpu::Buffer,
    count: u32,
    version: Option<u64>,
}

impl Resources {
    fn new(device: &wgpu::Device, format: wgpu::TextureFormat) -> Self {
        let label = Some("loka points");
        let locals = device.create_buffer(&wgpu::BufferDescriptor {
            label,
            size: size_of::<Locals>() as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label,
            entries: &[wgpu::BindGroupLayoutEntry {
                binding: 0,
                visibility: wgpu::ShaderStages::VERTEX_FRAGMENT,
                ty: wgpu::BindingType::Buffer {
                    ty: wgpu::BufferBindingType::Uniform,
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            }],
        });
        let bind_group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label,
            layout: &layout,
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: locals.as_entire_binding() }],
        });
        let pipeline = pipeline(device, &layout, format);
        Self { pipeline, locals, bind_group, instances: vertex_buffer(device, 0), count: 0, version: None }
    }

    fn upload(&mut self, device: &wgpu::Device, queue: &wgpu::Queue, wanted: &Instances) {
        if self.version == Some(wanted.version) {
            return;
        }
        let bytes: &[u8] = bytemuck::cast_slice(&wanted.all);
        if (bytes.len() as u64) > self.instances.size() {
            self.instances = vertex_buffer(device, bytes.len() as u64);
        }
        queue.write_buffer(&self.instances, 0, bytes);
        self.count = u32::try_from(wanted.all.len()).unwrap_or(u32::MAX);
        self.version = Some(wanted.version);
    }
}

/// Of the next power of two: a trace that grows row by row does not ask for a new one each time.
fn vertex_buffer(device: &wgpu::Device, bytes: u64) -> wgpu::Buffer {
    device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("loka points"),
        size: bytes.next_power_of_two().max(4096),
        usage: wgpu::BufferUsages::VERTEX | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

fn pipeline(
    device: &wgpu::Device,
    layout: &wgpu::BindGroupLayout,
    format: wgpu::TextureFormat,
) -> wgpu::RenderPipeline {
    let label = Some("loka points");
    let module = device.create_shader_module(wgpu::include_wgsl!("points.wgsl"));
    let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label,
        bind_group_layouts: &[Some(layout)],
        immediate_size: 0,
    });
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label,
        layout: Some(&layout),
        vertex: wgpu::VertexState {
            module: &module,
            entry_point: Some("vs_main"),
            buffers: &[Some(wgpu::VertexBufferLayout {
                array_stride: size_of::<Instance>() as u64,
                step_mode: wgpu::VertexStepMode::Instance,
                attributes: &wgpu::vertex_attr_array![0 => Float32x2, 1 => Uint32, 2 => Uint32],
            })],
            compilation_options: wgpu::PipelineCompilationOptions::default(),
        },
        primitive: wgpu::PrimitiveState {
            topology: wgpu::PrimitiveTopology::TriangleStrip,
            ..wgpu::PrimitiveState::default()
        },
        depth_stencil: None,
        multisample: wgpu::MultisampleState::default(),
        fragment: Some(wgpu::FragmentState {
            module: &module,
            entry_point: Some("fs_main"),
            targets: &[Some(wgpu::ColorTargetState {
                format,
                blend: Some(wgpu::BlendState::PREMULTIPLIED_ALPHA_BLENDING),
                write_mask: wgpu::ColorWrites::ALL,
            })],
            compilation_options: wgpu::PipelineCompilationOptions::default(),
        }),
        multiview_mask: None,
        cache: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_is_packed_as_the_shader_reads_it() {
        let point = Instance::new([0.1, -2.0], 7, Quadrant::Uncertain, LatencySource::Modelled, 9);
        assert_eq!((point.look & 15, point.look >> 4 & 3, point.look >> 6 & 15), (6, 3, 9));
        assert_eq!(size_of::<Instance>(), 16, "a quarter of a million are four megabytes");
    }

    #[test]
    fn uniforms_keep_to_sixteen_bytes() {
        // WebGL2 and WGSL: an array of vec4 begins at a multiple of 16, and the whole is one.
        assert_eq!(std::mem::offset_of!(Locals, colors) % 16, 0);
        assert_eq!(size_of::<Locals>() % 16, 0);
    }
}
