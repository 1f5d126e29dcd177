//! Takes a [`Picture`], draws it with a shader: its cells are a texture that is written when they change, its
//! colours a row of 256. Within the limits of WebGL2. What it needs on the device is made when first drawn.

use eframe::{
    egui_wgpu::{CallbackResources, CallbackTrait, ScreenDescriptor},
    wgpu,
};
use egui::PaintCallbackInfo;

use super::picture::{MAX_GROUPS, Picture, Texel};
use crate::theme::{Scale, rgb};

const COLORS: u32 = 256;

/// Draws a picture in a pass of egui's.
pub struct HeatmapCallback {
    pub picture: Picture,
    pub format: wgpu::TextureFormat,
}

/// What stays on the device between frames.
struct Resources {
    format: wgpu::TextureFormat,
    pipeline: wgpu::RenderPipeline,
    params: wgpu::Buffer,
    cells: wgpu::Texture,
    colors: wgpu::Texture,
    group: wgpu::BindGroup,
    /// Of the texels that `cells` holds.
    revision: Option<u64>,
    /// That `colors` holds.
    scale: Option<Scale>,
}

impl CallbackTrait for HeatmapCallback {
    fn prepare(
        &self,
        device: &wgpu::Device,
        queue: &wgpu::Queue,
        _: &ScreenDescriptor,
        _: &mut wgpu::CommandEncoder,
        resources: &mut CallbackResources,
    ) -> Vec<wgpu::CommandBuffer> {
        let known = resources.get::<Resources>().is_some_and(|of| of.format == self.format);
        if !known {
            resources.insert(Resources::new(device, self.format));
        }
        if let Some(resources) = resources.get_mut::<Resources>() {
            resources.write(device, queue, &self.picture);
        }
        Vec::new()
    }

    fn paint(&self, _: PaintCallbackInfo, pass: &mut wgpu::RenderPass<'static>, resources: &CallbackResources) {
        if let Some(resources) = resources.get::<Resources>() {
            pass.set_pipeline(&resources.pipeline);
            pass.set_bind_group(0, &resources.group, &[]);
            pass.draw(0..3, 0..1);
        }
    }
}

impl Resources {
    fn new(device: &wgpu::Device, format: wgpu::TextureFormat) -> Self {
        let shader = device.create_shader_module(wgpu::include_wgsl!("heatmap.wgsl"));
        let pipeline = pipeline(device, &shader, format);
        let params = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("heatmap params"),
            size: size_of::<Params>() as u64,
            usage: wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST,
            mapped_at_creation: false,
        });
        let cells = texture(device, "heatmap cells", wgpu::TextureFormat::Rg32Uint, 64, 64);
        let colors = texture(device, "heatmap colors", wgpu::TextureFormat::Rgba8Unorm, COLORS, 1);
        let group = group(device, &pipeline, &params, &cells, &colors);
        Self { format, pipeline, params, cells, colors, group, revision: None, scale: None }
    }

    fn write(&mut self, device: &wgpu::Device, queue: &wgpu::Queue, picture: &Picture) {
        let limit = device.limits().max_texture_dimension_2d;
        let (columns, rows) = (picture.num_columns as u32, (picture.num_rows() as u32).min(limit));
        if columns == 0 || columns > limit || rows == 0 {
            return;
        }
        if columns > self.cells.width() || rows > self.cells.height() {
            // In steps of two, so that a window that is pulled larger does not make one a frame.
            let grown = |size: u32, known: u32| size.next_power_of_two().max(known).min(limit);
            let (width, height) = (grown(columns, self.cells.width()), grown(rows, self.cells.height()));
            self.cells = texture(device, "heatmap cells", wgpu::TextureFormat::Rg32Uint, width, height);
            self.group = group(device, &self.pipeline, &self.params, &self.cells, &self.colors);
            self.revision = None;
        }
        if self.revision != Some(picture.revision) {
            let len = columns as usize * rows as usize;
            let bytes: &[u8] = bytemuck::cast_slice(&picture.texels[..len]);
            upload(queue, &self.cells, bytes, size_of::<Texel>() as u32 * columns, columns, rows);
            self.revision = Some(picture.revision);
        }
        if self.scale != picture.scale {
            let colors: Vec<u8> = picture.scale.map(|scale| lut(&scale)).unwrap_or_default();
            if !colors.is_empty() {
                upload(queue, &self.colors, &colors, 4 * COLORS, COLORS, 1);
            }
            self.scale = picture.scale;
        }
        let params = Params::of(picture, self.format.is_srgb());
        queue.write_buffer(&self.params, 0, bytemuck::bytes_of(&params));
    }
}

fn lut(scale: &Scale) -> Vec<u8> {
    let color = |at: u32| rgb(scale.color_at(f64::from(at) / f64::from(COLORS - 1))).to_array();
    (0..COLORS).flat_map(color).collect()
}

/// As the shader has it; lengths in pixels.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Params {
    frame: [f32; 4],
    cells: [f32; 4],
    scale: [f32; 4],
    flags: [f32; 4],
    groups: [[f32; 4]; MAX_GROUPS],
    waiting: [f32; 4],
    hatch: [f32; 4],
    beyond: [f32; 4],
}

impl Params {
    fn of(picture: &Picture, linear: bool) -> Self {
        let flag = |on: bool| if on { 1.0 } else { 0.0 };
        let pixels = picture.pixels_per_point;
        let corner = picture.corner();
        let mut groups = [[0.0; 4]; MAX_GROUPS];
        for (place, group) in groups.iter_mut().zip(&picture.groups) {
            *place = [group.left * pixels, group.first as f32, group.count as f32, 0.0];
        }
        let (lo, span, log) = picture.scale.map_or((0.0, 1.0, false), |scale| scale.axis());
        Self {
            frame: [corner.x, corner.y, pixels, picture.row * pixels],
            cells: [
                picture.top * pixels,
                picture.width * pixels,
                picture.num_rows() as f32,
                picture.num_columns as f32,
            ],
            scale: [lo as f32, (1.0 / span) as f32, flag(log), flag(picture.scale.is_some())],
            flags: [picture.groups.len().min(MAX_GROUPS) as f32, flag(picture.has_text), flag(linear), 0.0],
            groups,
            waiting: gamma(picture.palette.waiting),
            hatch: gamma(picture.palette.hatch),
            beyond: gamma(picture.palette.beyond),
        }
    }
}

/// Colour and alpha apart: egui's are multiplied.
fn gamma(color: egui::Color32) -> [f32; 4] {
    color.to_srgba_unmultiplied().map(|channel| f32::from(channel) / 255.0)
}

fn texture(device: &wgpu::Device, label: &str, format: wgpu::TextureFormat, width: u32, height: u32) -> wgpu::Texture {
    device.create_texture(&wgpu::TextureDescriptor {
        label: Some(label),
        size: wgpu::Extent3d { width, height, depth_or_array_layers: 1 },
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format,
        usage: wgpu::TextureUsages::TEXTURE_BINDING | wgpu::TextureUsages::COPY_DST,
        view_formats: &[],
    })
}

fn upload(queue: &wgpu::Queue, texture: &wgpu::Texture, bytes: &[u8], bytes_per_row: u32, width: u32, height: u32) {
    let layout = wgpu::TexelCopyBufferLayout { offset: 0, bytes_per_row: Some(bytes_per_row), rows_per_image: None };
    let size = wgpu::Extent3d { width, height, depth_or_array_layers: 1 };
    queue.write_texture(texture.as_image_copy(), bytes, layout, size);
}

fn group(
    device: &wgpu::Device,
    pipeline: &wgpu::RenderPipeline,
    params: &wgpu::Buffer,
    cells: &wgpu::Texture,
    colors: &wgpu::Texture,
) -> wgpu::BindGroup {
    let (cells, colors) = (cells.create_view(&Default::default()), colors.create_view(&Default::default()));
    let entry = |binding, resource| wgpu::BindGroupEntry { binding, resource };
    device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: Some("heatmap"),
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[
            entry(0, params.as_entire_binding()),
            entry(1, wgpu::BindingResource::TextureView(&cells)),
            entry(2, wgpu::BindingResource::TextureView(&colors)),
        ],
    })
}

fn pipeline(device: &wgpu::Device, shader: &wgpu::ShaderModule, format: wgpu::TextureFormat) -> wgpu::RenderPipeline {
    let target = wgpu::ColorTargetState {
        format,
        blend: Some(wgpu::BlendState::PREMULTIPLIED_ALPHA_BLENDING),
        write_mask: wgpu::ColorWrites::ALL,
    };
    device.create_render_pipeline(&wgpu::RenderPipelineDescriptor {
        label: Some("heatmap"),
        layout: None,
        vertex: wgpu::VertexState {
            module: shader,
            entry_point: Some("vertex"),
            compilation_options: Default::default(),
            buffers: &[],
        },
        primitive: wgpu::PrimitiveState::default(),
        depth_stencil: None,
        multisample: wgpu::MultisampleState::default(),
        fragment: Some(wgpu::FragmentState {
            module: shader,
            entry_point: Some("fragment"),
            compilation_options: Default::default(),
            targets: &[Some(target)],
        }),
        multiview_mask: None,
        cache: None,
    })
}

impl HeatmapCallback {
    /// As a shape for egui's painter.
    pub fn shape(self) -> egui::Shape {
        let rect = self.picture.rect;
        egui::Shape::Callback(eframe::egui_wgpu::Callback::new_paint_callback(rect, self))
    }
}
