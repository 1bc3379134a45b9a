"""litellm.batch_completion: its threads, one call for all rows, answers in order at the end."""

import litellm
from given import answer_line, read_arguments, rows

if __name__ == "__main__":
    task = read_arguments()
    litellm.telemetry = False
    given = list(rows(task.input))
    answers = (
        litellm.batch_completion(
            model=f"openai/{given[0]['body']['model']}",
            messages=[row["body"]["messages"] for row in given],
            api_base=f"{task.url}/v1",
            api_key="none",
            max_workers=task.in_flight,
        )
        if given
        else []
    )
    with task.output.open("w") as file:
        for row, answer in zip(given, answers, strict=True):
            file.write(answer_line(row["custom_id"], answer.model_dump()))
