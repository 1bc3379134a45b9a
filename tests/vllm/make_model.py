"""Make a Llama of 213,000 parameters with random weights: `python make_model.py FOLDER`, with vLLM's own Python.

It answers nonsense, but through every part of a real engine: tokenizer, chat template, scheduler, sampler.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

VOCABULARY = 1024
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte-level, so that it takes any text; trained on this file's own words."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    text = Path(__file__).read_text(encoding="utf-8")
    made.train_from_iterator([text, *text.split()], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token=special[0], eos_token=special[2], pad_token=special[0]
    )
    fast.chat_template = TEMPLATE
    return fast


def main(folder: Path) -> None:
    """Write the model and its tokenizer, the same at every run."""
    torch.manual_seed(7)
    words = tokenizer()
    config = LlamaConfig(
        vocab_size=len(words),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,  # of 32 each, the least that vLLM's attention on a CPU takes
        num_key_value_heads=2,
        max_position_embeddings=2048,
        bos_token_id=0,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    words.save_pretrained(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
