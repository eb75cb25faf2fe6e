"""The layers worth measuring: one table for the tests, the benchmarks and the notebooks.

A row is a name, the network it is from, and its descriptor (see problem.py) at the sizes of
the `cpu-small` preset; the other presets are the same layers with larger batches, and `tiny`
keeps what a layer is (ranks, kernels, strides, groups, uneven ends) at test size. The one row
from no published network, a ResNeXt stage turned round, is there for its class.
"""

import dataclasses

from benchmarks.layer import Ints, Layer, layer_class
from benchmarks.problem import parse

BATCH_FACTOR = {"cpu-small": 1, "gpu": 16, "tpu": 32}
PRESETS = ("tiny", *BATCH_FACTOR)

_ROWS = """
conv   ResNet-50       mb4ic3ih224oc64oh112kh7sh2ph3n"resnet50-stem"
conv   ResNet-50       mb8ic64ih56oc256oh56kh1n"resnet50-56-1x1"
conv   ResNet-50       mb8ic64ih56oc64oh56kh3ph1n"resnet50-56-3x3"
conv   ResNet-50       mb8ic128ih56oc128oh28kh3sh2ph1n"resnet50-28-3x3-s2"
conv   ResNet-50       mb8ic128ih28oc128oh28kh3ph1n"resnet50-28-3x3"
conv   ResNet-50       mb8ic256ih56oc512oh28kh1sh2n"resnet50-28-1x1-s2"
conv   ResNet-50       mb8ic256ih28oc256oh14kh3sh2ph1n"resnet50-14-3x3-s2"
conv   ResNet-50       mb8ic256ih14oc256oh14kh3ph1n"resnet50-14-3x3"
conv   ResNet-50       mb8ic1024ih14oc256oh14kh1n"resnet50-14-1x1"
conv   ResNet-50       mb16ic512ih14oc512oh7kh3sh2ph1n"resnet50-7-3x3-s2"
conv   ResNet-50       mb16ic512ih7oc512oh7kh3ph1n"resnet50-7-3x3"
conv   ResNet-50       mb16ic1024ih14oc2048oh7kh1sh2n"resnet50-7-1x1-s2"
conv   VGG-16          mb1ic64ih112oc128oh112kh3ph1n"vgg16-conv2_1"
conv   VGG-16          mb2ic512ih14oc512oh14kh3ph1n"vgg16-conv5_1"
conv   U-Net           mb1ic64ih140oc64oh138kh3ph0n"unet-enc1"
conv   DeepLabv3       mb1ic256ih33oc256oh33kh3ph2dh1n"deeplab-d2"
conv   DeepLabv3       mb1ic320ih33oc256oh33kh3ph6dh5n"deeplab-aspp-d6"
conv   DeepLabv3       mb1ic320ih33oc256oh33kh3ph12dh11n"deeplab-aspp-d12"
conv   ResNeXt-50      mb8g32ic128ih56oc128oh56kh3ph1n"resnext50-56-g32x4"
conv   ResNeXt-50      mb8g32ic256ih56oc256oh28kh3sh2ph1n"resnext50-28-g32x8-s2"
conv   ResNeXt-50      mb8g32ic256ih28oc256oh28kh3ph1n"resnext50-28-g32x8"
conv   ResNeXt-50      mb16g32ic1024ih7oc1024oh7kh3ph1n"resnext50-7-g32x32"
conv   RegNetX-400MF   mb8g10ic160ih28oc160oh14kh3sh2ph1n"regnet-14-g10x16-s2"
conv   RegNetY-1.6GF   mb8g5ic120ih28oc120oh28kh3ph1n"regnet-28-g5x24"
conv   ShuffleNet      mb8g3ic240ih28oc60oh28kh1n"shufflenet-28-1x1-g3"
conv   ShuffleNet      mb8g8ic768ih14oc192oh14kh1n"shufflenet-14-1x1-g8"
conv   MobileNetV2     mb8ic24ih56oc144oh56kh1n"mobilenetv2-56-1x1"
conv   MobileNetV2     mb8g144ic144ih56oc144oh56kh3ph1n"mobilenetv2-56-dw3"
conv   MobileNetV2     mb4g96ic96ih112oc96oh56kh3sh2ph1n"mobilenetv2-56-dw3-s2"
conv   MobileNetV2     mb16g960ic960ih7oc960oh7kh3ph1n"mobilenetv2-7-dw3"
conv   EfficientNet-B0 mb4g96ic96ih112oc96oh56kh3sh2ph0n"efficientnet-56-dw3-s2-same"
conv   EfficientNet-B0 mb8g240ic240ih28oc240oh28kh5ph2n"efficientnet-28-dw5"
conv   EfficientNet-B0 mb8g672ic672ih14oc672oh7kh5sh2ph1n"efficientnet-7-dw5-s2-same"
conv   ConvNeXt-T      mb4g96ic96ih56oc96oh56kh7ph3n"convnext-56-dw7"
conv   ConvNeXt-T      mb8g384ic384ih14oc384oh14kh7ph3n"convnext-14-dw7"
conv   ConvNeXt-B      mb8g1024ic1024ih7oc1024oh7kh7ph3n"convnext-7-dw7"
conv   ConvNeXt-T      mb8ic3ih224oc96oh56kh4sh4n"convnext-patchify"
conv   ConvNeXt-T      mb8ic96ih56oc192oh28kh2sh2n"convnext-downsample"
conv   RepLKNet-31B    mb2g512ic512ih14oc512oh14kh27ph13n"replknet-14-dw27"
conv   Inception-v2    mb4g3ic3ih224oc24oh112kh7sh2ph2n"inceptionv2-stem-dw7-s2-m8"
conv   EEGNet          mb16g8ic8ih64iw128oc16oh1ow128kh64kw1n"eegnet-spatial-m2"
conv   EEGNet          mb16g16ic16ih1iw32oc32oh1ow32kh1kw16pw7n"eegnet-temporal-m2"
conv   ViT-S/16        mb8ic3ih224oc384oh14kh16sh16n"vit-patchify"
conv   DCGAN           mb16ic64ih32oc128oh16kh4sh2ph1n"dcgan-discriminator"
deconv DCGAN           mb16ic100ih1oc512oh4kh4n"dcgan-project"
deconv DCGAN           mb8ic256ih8oc128oh16kh4sh2ph1n"dcgan-generator"
deconv DCGAN           mb16ic64ih32oc3oh64kh4sh2ph1n"dcgan-image"
deconv U-Net           mb2ic256ih28oc128oh56kh2sh2n"unet-up-k2-s2"
deconv LinkNet         mb4ic64ih28oc64oh56kh3sh2ph1n"linknet-up-k3-s2-op1"
deconv FSRCNN          mb1ic56ih64oc1oh256kh9sh4ph4n"fsrcnn-up-k9-s4"
deconv FCN-8s          mb4g21ic21ih32oc21oh64kh4sh2ph1n"fcn-up-dw4-s2"
deconv DLA-34          mb4g64ic64ih64oc64oh128kh4sh2ph1n"dla-up-dw4-s2"
deconv LPN-50          mb8g256ic2048ih8iw6oc256oh16ow12kh4kw4sh2sw2ph1pw1n"lpn-up-g256x8"
deconv mirrored ResNeXt mb8g32ic256ih14oc128oh28kh4sh2ph1n"resnext-mirrored-up-g32x8"
conv   WaveNet         mb2ic64iw4000oc128ow4000kw2pw256dw255n"wavenet-d256"
conv   TCN             mb8ic150iw512oc150ow512kw5pw32dw7n"tcn-d8"
conv   wav2vec 2.0     mb4ic1iw16000oc512ow3199kw10sw5n"wav2vec2-k10-s5"
conv   Demucs          mb4ic64iw8000oc128ow1999kw8sw4n"demucs-k8-s4"
conv   SoundStream     mb4ic128iw2000oc256ow250kw16sw8pw4n"soundstream-k16-s8"
conv   Conformer       mb16g256ic256iw200oc256ow200kw31pw15n"conformer-dw31"
deconv HiFi-GAN        mb4ic256iw128oc128ow1024kw16sw8pw4n"hifigan-up-k16-s8"
deconv HiFi-GAN        mb4ic128iw1024oc64ow2048kw4sw2pw1n"hifigan-up-k4-s2"
deconv BigVGAN         mb4g128ic128iw2048oc128ow4096kw12sw2pw5n"bigvgan-up-dw12-s2"
conv   3-D U-Net       mb1ic32id16ih32oc64od16oh32kd3kh3pd1ph1n"unet3d-16-3x3x3"
conv   3-D ResNet-18   mb1ic64id8ih28oc128od4oh14kd3kh3sd2sh2pd1ph1n"resnet3d-4-3x3x3-s2"
conv   R(2+1)D-18      mb1ic64id4ih56oc144od4oh56kd1kh3pd0ph1n"r2plus1d-1x3x3"
conv   R(2+1)D-18      mb1ic144id8ih56oc64od8oh56kd3kh1pd1ph0n"r2plus1d-3x1x1"
conv   X3D-S           mb1g54ic54id13ih40oc54od13oh40kd3kh3pd1ph1n"x3d-40-dw3"
conv   X3D-S           mb1g108ic108id13ih40oc108od13oh20kd3kh3sd1sh2pd1ph1n"x3d-20-dw3-s2"
deconv 3-D U-Net       mb1ic128id8ih16oc64od16oh32kd2kh2sd2sh2n"unet3d-up-k2-s2"
"""


def layers(preset: str = "cpu-small") -> list[Layer]:
    """Every row at a preset's size."""
    return sized([_row(line) for line in _ROWS.strip().splitlines()], preset)


def sized(rows: list[Layer], preset: str) -> list[Layer]:
    """Rows at a preset's size."""
    if preset == "tiny":
        return [tiny(row) for row in rows]
    factor = BATCH_FACTOR[preset]
    return [dataclasses.replace(row, batch=row.batch * factor) for row in rows]


def tiny(layer: Layer) -> Layer:
    """The same kind of layer at test size: batch 2, few channels, at most 3x2x4 outputs.

    Kernel, stride, and what is left over at either end stay, so that uneven pads, unread
    ends and output padding remain; dilations are cut to 3 and their pads in proportion.
    """
    groups = min(layer.groups, 3)
    channels = [
        min(c // layer.groups, most) * groups
        for c, most in zip(layer.channels, (3, 2), strict=True)
    ]
    dilations = tuple(min(d, 3) for d in layer.dilations)
    extents = dataclasses.replace(layer, dilations=dilations).extents

    def cut(pads: Ints) -> Ints:
        axes = zip(pads, extents, layer.extents, strict=True)
        return tuple(p * new // old if p > 0 else p for p, new, old in axes)

    begins, ends = cut(layer.pads_begin), cut(layer.pads_end)
    coarse = map(min, layer.coarse, (3, 2, 4))
    axes = zip(coarse, layer.strides, extents, begins, ends, strict=True)
    return dataclasses.replace(
        layer,
        batch=2,
        groups=groups,
        channels=tuple(channels),
        fine=tuple(s * (c - 1) + extent - begin - end for c, s, extent, begin, end in axes),
        dilations=dilations,
        pads_begin=begins,
        pads_end=ends,
    )


def _row(line: str) -> Layer:
    family, rest = line.split(maxsplit=1)
    network, descriptor = rest.rsplit(maxsplit=1)
    return tagged(parse(descriptor, family, network.strip()))


def tagged(layer: Layer) -> Layer:
    """The layer with the tags that its numbers imply."""
    strided = ("strided",) if max(layer.strides) > 1 else ()
    dilated = ("dilated",) if max(layer.dilations) > 1 else ()
    return dataclasses.replace(layer, tags=(layer_class(layer), *strided, *dilated))
